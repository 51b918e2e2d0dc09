#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/generic/stream_protocol.hpp>

#include "base/result.h"

namespace heddle::remote {

/// One end of a connection that a link carries: what a socket gives goes to the other end, and what
/// comes from there to the socket. Neither end is sent more than kStreamWindow before the socket
/// there has taken some, so what it holds is bounded. Loop thread.
class CarriedStream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;

  /// Called on the loop. They may destroy the stream; none runs after that.
  struct Handlers {
    /// The socket has given these bytes, which are to go to the other end. Not from within a call.
    std::function<void(std::string bytes)> on_bytes{};
    /// So many bytes more may come from the other end. Not from within a call but begin().
    std::function<void(std::uint64_t bytes)> on_taken{};
    /// The socket has ended, with an error where it broke; it gives no more. Nothing follows.
    std::function<void(std::optional<Error> why)> on_ended{};
    /// Whether the link takes more now; if not, resume() follows.
    std::function<bool()> has_room{};
  };

  explicit CarriedStream(Handlers handlers);
  /// Closes the socket.
  ~CarriedStream();
  CarriedStream(const CarriedStream&) = delete;
  CarriedStream& operator=(const CarriedStream&) = delete;

  /// The socket, which is connected. What has come before goes to it.
  void begin(Socket socket);

  /// From the other end. kCorrupt for more than it may send.
  [[nodiscard]] Result<void> put(std::string bytes);
  /// The other end has passed so many bytes on. kCorrupt for more than it was sent.
  [[nodiscard]] Result<void> taken(std::uint64_t bytes);
  /// The link takes more again.
  void resume();
  /// Nothing more comes from the other end: closes the socket when it has taken all that came, and
  /// then calls `closed`, or on_ended where the socket ends before.
  void finish(std::function<void()> closed);

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace heddle::remote
