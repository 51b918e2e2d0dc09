#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

#include "base/http_address.h"
#include "base/result.h"
#include "base/time.h"

/// HTTP as a client: one that is awaited, and one that blocks (blocking_client.h).
namespace heddle::http {

/// Of a body that may be as long as it is.
inline constexpr std::uint64_t kAnyLength = std::numeric_limits<std::uint64_t>::max();

/// What a server is asked.
struct Request {
  std::string method = "GET";
  std::string target = "/";  ///< Below the base path of the address; with its query.
  std::string body{};        ///< JSON; empty: none.
  /// From the connection to the last byte; nothing: as long as it takes.
  std::optional<Duration> patience{};
  std::uint64_t body_max = 4U << 20U;  ///< Of an answer that is kept whole [bytes].
  /// Called with what has come of the body of an answer with status 200, which is then not kept;
  /// null: every answer is kept whole.
  std::function<void(std::string_view)> on_part{};
  /// Never sent a second time. Otherwise it is where a kept connection closes before any answer,
  /// and a server may have done twice what it was asked.
  bool once = false;
};

/// What it answered.
struct Reply {
  int status = 0;
  std::string body{};         ///< Empty where it was told in parts.
  std::string retry_after{};  ///< The header, or empty.
};

/// What opens a server, and how it is known to be the one that is meant.
struct Access {
  std::string api_key{};  ///< Empty for none.
  /// PEM file of who vouches for its certificate; empty: whom the system trusts.
  std::string ca{};
  /// PEM files of the client's own certificate, with its chain, and of its key; empty: none.
  std::string certificate{};
  std::string key{};
  bool insecure = false;  ///< Nobody needs to.
};

/// How a client speaks to a server.
struct ClientOptions {
  Access access{};
  std::string user_agent{};  ///< Empty: not said.
  bool keep_alive = false;   ///< Keep connections for the next requests; false: one for each.
  /// Further ones of each request, by name; not those that are made here.
  std::vector<std::pair<std::string, std::string>> headers{};
};

/// Asks one server, any number of requests at a time. Used by the thread of its executor, and
/// outlives its exchanges.
class Client {
 public:
  Client(const boost::asio::any_io_executor& executor, HttpAddress address, ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Finds the address, which the first request does otherwise. kUnavailable where there is none.
  boost::asio::awaitable<Result<void>> resolve();

  /// Opens a connection and closes it: whether somebody listens there. Fails as exchange() does.
  boost::asio::awaitable<Result<void>> connect(std::optional<Duration> patience);

  /// Sends a request and reads the answer, whatever its status; follows no redirect. A connection
  /// that was kept, and closed before it gave anything of an answer, is replaced by a new one.
  /// kUnavailable where nobody listens, the exchange breaks or the answer is longer than
  /// `body_max`, kDeadlineExceeded where it is not over within the patience, kFailedPrecondition
  /// where nobody vouches for the server's certificate, kInvalidArgument where the file of who
  /// does, or of the client's certificate, cannot be read. Messages are "URL: why".
  boost::asio::awaitable<Result<Reply>> exchange(Request request);

  /// Ends what exchanges run on connections, which then fail with kUnavailable. May be called
  /// from `on_part`.
  void stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// One exchange, over a connection of its own. Fails as Client::exchange() does.
[[nodiscard]] boost::asio::awaitable<Result<Reply>> exchange(HttpAddress address, Request request);

/// Whether somebody listens there.
[[nodiscard]] boost::asio::awaitable<bool> port_open(HttpAddress address, Duration patience);

}  // namespace heddle::http
