#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "base/rng.h"
#include "gateway/connection_table.h"
#include "gateway/http_date.h"
#include "gateway/http_server.h"

namespace heddle::gateway {

/// What a server and its connections share; outlives whichever ends first. Loop thread.
struct ConnectionShared {
  boost::asio::io_context& loop;
  HttpServer::Options options;
  HttpServer::Gatekeeper gatekeeper;
  HttpServer::Handler handler;
  Rng rng;  ///< For request ids.
  ConnectionTable table{};
  HttpDate date{};
  bool draining = false;
  std::function<void()> closed{};  ///< Told when a connection has left the table.
};

/// One client's connection, which lives in a coroutine of its own until it ends. Loop thread.
class HttpConnection : public ConnectionTable::Entry {
 public:
  /// Serves what comes over `socket`; where there is no room, a silent connection goes. `peer` is
  /// the client's address, where the socket's other end is not the client; else empty.
  static void start(std::shared_ptr<ConnectionShared> shared,
                    boost::asio::ip::tcp::socket socket,
                    std::string peer = {});
};

}  // namespace heddle::gateway
