#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/awaitable.hpp>

#include "base/result.h"

namespace heddle::gateway {

/// What a client may do who was let in.
struct Guest {
  std::int32_t least_priority = INT32_MIN;  ///< The most urgent that its requests can be.
  /// Stands for its key, without telling it, in digits; empty where no key is asked for. Guests
  /// with different ones share no cached prefixes.
  std::string tenant{};
};

/// The content type of server-sent events.
inline constexpr const char* kEventStream = "text/event-stream";

/// What a client asks.
struct HttpRequest {
  std::string method{};  ///< "GET"; HEAD has become GET.
  std::string path{};    ///< Still percent-encoded, without the query.
  std::string query{};   ///< After the '?', or empty.
  std::string accept{};  ///< The header, or empty.
  std::string body{};
  std::string request_id{};  ///< The client's x-request-id where it is sane, else drawn.
  Guest guest{};
};

struct HttpResponse {
  int status = 200;
  std::string body{};
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers{};  ///< Further ones.
};

/// One request and its answer: either respond() once, or begin_stream(), any number of
/// send_part() and end_stream(). Loop thread. A failure to send means that the client has gone,
/// or has taken nothing for so long that it was given up.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  [[nodiscard]] virtual const HttpRequest& request() const = 0;

  virtual boost::asio::awaitable<Result<void>> respond(HttpResponse response) = 0;

  /// Sends the head of an answer that comes in parts; its status is 200.
  virtual boost::asio::awaitable<Result<void>> begin_stream(std::string content_type) = 0;
  /// Sends some of it and returns when the network has taken it. Not empty.
  virtual boost::asio::awaitable<Result<void>> send_part(std::string part) = 0;
  virtual boost::asio::awaitable<Result<void>> end_stream() = 0;

  /// Whether the client has hung up.
  [[nodiscard]] virtual bool gone() const = 0;
  /// `notify` is called once when the client hangs up; a null one takes the former back.
  virtual void on_gone(std::function<void()> notify) = 0;
};

/// `%2F` and such made characters again; a '%' that begins no code stays.
[[nodiscard]] std::string percent_decode(std::string_view text);

}  // namespace heddle::gateway
