#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle::cli {

/// What opens a server, and how it is known to be the one that is meant.
struct ServerAccess {
  std::string api_key{};  ///< Empty for none.
  std::string
      ca{};  ///< PEM file of who vouches for its certificate; empty: whom the system trusts.
  bool insecure = false;  ///< Nobody needs to.
};

/// Where a server is, and what opens it.
struct ServerAddress {
  std::string host{};
  std::string port{};
  bool tls = false;
  ServerAccess access{};

  [[nodiscard]] std::string url() const;
};

/// Reads "http://host:port", "https://host:port", "host:port", "host" or ":port"; what is missing
/// is 127.0.0.1 and 8080, or 443 with https.
Result<ServerAddress> parse_server_address(std::string_view text, ServerAccess access);

struct Reply {
  int status = 0;
  std::string body{};
};

/// Talks to a running server, one request at a time. Ctrl-C during a request ends that request.
class Client {
 public:
  explicit Client(ServerAddress address);
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
  void watch_loading(std::string model, std::function<void(std::optional<double>)> show);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::cli
