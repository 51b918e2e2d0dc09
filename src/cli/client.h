#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/http_address.h"
#include "base/result.h"
#include "http/client.h"

namespace heddle::cli {

/// Reads "http://host:port", "https://host:port", "host:port", "host" or ":port"; what is missing
/// is 127.0.0.1 and 8080, or 443 with https.
Result<HttpAddress> parse_server_address(std::string_view text);

/// Talks to a running server, one request at a time. Ctrl-C during a request ends that request.
class Client {
 public:
  Client(HttpAddress address, http::Access access);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// The body of a successful answer. kUnavailable when the server cannot be reached, kCancelled
  /// after Ctrl-C; else the server's own words.
  Result<std::string> get(const std::string& path);
  Result<std::string> post(const std::string& path, const std::string& body);

  /// Called with the data of each event of a stream, without "[DONE]".
  using OnEvent = std::function<void(std::string_view data)>;
  /// Posts, and takes the answer as a stream of events.
  Result<void> stream(const std::string& path, const std::string& body, const OnEvent& on_event);

  /// While further requests run, asks how far the loading of `model` is, several times a second,
  /// and calls `show` with a number from 0 to 1; with nothing once it is not loading.
  void watch_loading(const std::string& model, std::function<void(std::optional<double>)> show);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::cli
