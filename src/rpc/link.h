#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

#include "base/result.h"
#include "rpc/descriptor.h"
#include "rpc/frame.h"

namespace heddle::rpc {

struct LinkLimits {
  std::size_t payload_bytes_max = std::size_t{64} << 20U;  ///< Of one frame, either way.
  std::size_t queued_bytes_max = std::size_t{256} << 20U;  ///< Sent but not taken by the socket.
};

class Stream;

/// One connection over which frames go both ways, in order. Loop thread only, except for
/// queued_bytes(). Handlers run on the loop, never from within a call to the link, and none runs
/// after the link is destroyed; a handler may destroy it.
class Link {
 public:
  struct Handlers {
    std::function<void(Frame)> on_frame{};
    /// The link is of no more use: the peer has gone (kUnavailable) or does not speak the protocol
    /// (kCorrupt). Called at most once; nothing follows it.
    std::function<void(const Error&)> on_closed{};
    /// The send queue has become empty after having held something. May be empty.
    std::function<void()> on_drained{};
  };

  /// Takes over a connected Unix stream socket and begins to read.
  Link(const boost::asio::any_io_executor& executor,
       Descriptor socket,
       Handlers handlers,
       LinkLimits limits = {});
  /// Over another stream.
  explicit Link(std::unique_ptr<Stream> stream, Handlers handlers, LinkLimits limits = {});
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Queues one frame. kResourceExhausted when the peer takes too little for it to fit the queue,
  /// kUnavailable once the link is closed, kInvalidArgument for descriptors where the stream
  /// carries none; then nothing was queued.
  Result<void> send(std::string payload, std::vector<Descriptor> descriptors = {});

  /// Bytes in the send queue. Whoever produces without being asked (token frames) stops while this
  /// is high, and goes on at on_drained. Any thread.
  [[nodiscard]] std::size_t queued_bytes() const;
  /// How many bytes of frames have come, whole frames or not: whether the peer says anything.
  [[nodiscard]] std::uint64_t received_bytes() const;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

/// Two connected Unix stream sockets, closed on exec.
[[nodiscard]] Result<std::pair<Descriptor, Descriptor>> socket_pair();
/// The same of sockets that keep packets apart (SOCK_SEQPACKET), for what is no Link.
[[nodiscard]] Result<std::pair<Descriptor, Descriptor>> packet_pair();

}  // namespace heddle::rpc
