#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/rng.h"
#include "gateway/http_server.h"

namespace heddle::gateway {

class HttpConnection;

/// What a server and its connections share; outlives whichever ends first. Loop thread.
struct ConnectionShared {
  boost::asio::io_context& loop;
  config::Limits limits;
  HttpServer::Gatekeeper gatekeeper;
  HttpServer::Handler handler;
  Rng rng;  ///< For request ids.
  std::set<HttpConnection*> open{};
  bool draining = false;
  std::function<void()> closed{};  ///< Told when a connection has left `open`.
};

/// One client's connection, which lives in a coroutine of its own until it ends. Loop thread.
class HttpConnection {
 public:
  virtual ~HttpConnection() = default;

  /// Serves what comes over `socket`. With `too_many`, the one answer is that there are. `peer` is
  /// the client's address, where the socket's other end is not the client; else empty.
  static void start(std::shared_ptr<ConnectionShared> shared,
                    boost::asio::ip::tcp::socket socket,
                    bool too_many,
                    std::string peer = {});

  /// Ends it: at once between requests, else after the answer.
  virtual void wind_down() = 0;
  virtual void close() = 0;
};

}  // namespace heddle::gateway
