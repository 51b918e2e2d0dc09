#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include "base/result.h"
#include "base/time.h"
#include "bench/endpoint.h"

namespace heddle::bench {

/// What a server answered.
struct HttpReply {
  int status = 0;
  std::string body{};  ///< Empty where it was told in parts.
};

/// Asks one endpoint, any number of requests at a time, over connections that it keeps for the
/// next ones. Certificates are checked against the system's. Owned by the thread of its loop.
class HttpClient {
 public:
  /// @param patience  For one request, from the connection to the last byte.
  HttpClient(boost::asio::io_context& loop, Endpoint endpoint, Duration patience);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Finds the address. kUnavailable where there is none.
  boost::asio::awaitable<Result<void>> resolve();

  /// Called with what has come of the body of an answer with status 200.
  using OnPart = std::function<void(std::string_view)>;
  /// Posts JSON to `path` below the endpoint's. `on_part` may be null. kUnavailable where the
  /// connection fails or its time is up.
  boost::asio::awaitable<Result<HttpReply>> post(std::string path,
                                                 std::string body,
                                                 OnPart on_part);

  /// Gets what is at `path` below the endpoint's. kUnavailable likewise.
  boost::asio::awaitable<Result<HttpReply>> get(std::string path);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::bench
