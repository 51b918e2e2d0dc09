#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <boost/asio/generic/stream_protocol.hpp>

#include "base/result.h"
#include "rpc/descriptor.h"
#include "rpc/frame.h"

namespace heddle::rpc {

/// What carries the bytes of a Link, in order, both ways, without waiting. Loop thread.
class Stream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  /// What one try to move bytes came to.
  struct Moved {
    std::size_t bytes = 0;
    /// There will be no more after these, and why.
    std::optional<Error> end{};
    /// With 0 bytes and no end: what the socket must be ready for before the next try.
    Socket::wait_type until = Socket::wait_read;
  };

  virtual ~Stream() = default;
  /// What is waited on.
  virtual Socket& socket() = 0;
  /// Whether frames may have descriptors.
  [[nodiscard]] virtual bool carries_descriptors() const = 0;
  /// Sends what it can of `head` and then `body`, and all `descriptors` with the first byte. Where
  /// it moves nothing, the next try is of the same bytes.
  virtual Moved send(std::span<const std::byte> head,
                     std::string_view body,
                     std::span<const Descriptor> descriptors) = 0;
  /// Receives into `buffer`, of at least 64 KiB. Descriptors that came along go to `decoder` at
  /// once. Holds nothing back: when it has moved less than there is, the socket is ready still.
  virtual Moved receive(std::span<std::byte> buffer, FrameDecoder& decoder) = 0;
  /// Ends both ways at once, and with it all waiting.
  virtual void close() = 0;
};

}  // namespace heddle::rpc
