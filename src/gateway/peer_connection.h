#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "base/result.h"
#include "base/time.h"
#include "config/config.h"
#include "gateway/deadline.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// What certificates of a peer are checked against. kInvalidArgument where the file of who vouches
/// for it cannot be read.
Result<std::shared_ptr<boost::asio::ssl::context>> peer_tls(const config::PeerConfig& peer);

/// A connection to a peer, plain or by TLS. Its failures are sentences that say what was tried.
/// Loop thread; one coroutine at a time.
class PeerConnection {
 public:
  /// `tls` is null for a peer that does not speak it; `peer` outlives the connection.
  PeerConnection(boost::asio::io_context& loop,
                 const config::PeerConfig& peer,
                 std::shared_ptr<boost::asio::ssl::context> tls);

  /// Connects, and checks the certificate. kUnavailable where nobody is there, kDeadlineExceeded
  /// where that takes too long, kFailedPrecondition where the certificate is not to be trusted.
  Task<Result<void>> open();
  Task<Result<void>> write(std::string bytes);
  /// What comes next; empty at the end. kDeadlineExceeded where nothing does within `patience`.
  Task<Result<std::string>> read(Duration patience);
  /// Ends what waits, with kCancelled.
  void close();

 private:
  Task<Result<void>> connect();
  Task<Result<void>> shake_hands();
  [[nodiscard]] Error failed(const std::string& doing, const boost::system::error_code& why) const;

  boost::asio::io_context& loop_;
  const config::PeerConfig& peer_;
  std::shared_ptr<boost::asio::ssl::context> tls_;
  boost::asio::ip::tcp::socket socket_;
  std::optional<boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>> secured_{};
  bool late_ = false;
  bool closed_ = false;
  Deadline deadline_;
};

}  // namespace heddle::gateway
