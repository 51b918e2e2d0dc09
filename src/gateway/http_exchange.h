#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/config.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// What a client may do who was let in.
struct Principal {
  config::Role role = config::Role::kInference;
  std::string name{};                       ///< Of its key, for people; may be empty.
  std::int32_t least_priority = INT32_MIN;  ///< The most urgent that its requests can be.
  /// Stands for its key, without telling it, in digits; empty where no key is asked for.
  std::string tenant{};
  std::string account{};  ///< Whose its usage is, for people, and the same in every process.
  std::string owner{};    ///< Whose files and batches are its; empty where no key is asked for.
  /// Stands for its key in what processes of a cluster tell each other, and nowhere else: unlike
  /// `tenant` it is the same in every process. Principals with different ones share no cached
  /// prefixes.
  std::string key_digest{};
  std::int64_t requests_per_minute = 0;  ///< That it may make; 0: any.
  std::int64_t tokens_per_minute = 0;    ///< That it may use; 0: any.
};

/// Names and values of headers, in order.
using HttpFields = std::vector<std::pair<std::string, std::string>>;

/// The content type of server-sent events.
inline constexpr const char* kEventStream = "text/event-stream";

/// What a client asks.
struct HttpRequest {
  std::string method{};    ///< "GET"; HEAD has become GET.
  std::string path{};      ///< Still percent-encoded, without the query.
  std::string query{};     ///< After the '?', or empty.
  std::string accept{};    ///< The header, or empty.
  HttpFields headers{};    ///< All of them.
  bool head_only = false;  ///< The method was HEAD.
  std::string body{};
  std::string request_id{};     ///< The client's x-request-id where it is sane, else drawn.
  HttpFields answer_headers{};  ///< Further ones of every answer to it.
  Principal principal{};
  std::string peer{};  ///< The client's address, without the port; empty where it has left.
  bool tls = false;    ///< It came over TLS.

  /// Who has to share with others: one key, or, where no key is asked for, one address.
  [[nodiscard]] const std::string& client() const {
    return principal.tenant.empty() ? peer : principal.tenant;
  }
};

/// Whose a request is, for as long as it runs and is told of.
struct Asker {
  std::string tenant{};   ///< Principal::tenant.
  std::string share{};    ///< Who shares with others; empty where clients are not told apart.
  std::string name{};     ///< For people.
  std::string account{};  ///< Principal::account.
  std::string salt{};     ///< Of cached prefixes: Principal::key_digest.
};
/// The share of all requests in the background; no key or address is called so.
inline constexpr const char* kBackgroundShare = "in the background";

/// Clients of this machine that show no key are not told apart: what is in front of them, such as
/// a proxy, has one address.
[[nodiscard]] Asker asker_of(const HttpRequest& request);

struct HttpResponse {
  int status = 200;
  std::string body{};
  std::string content_type = "application/json";
  HttpFields headers{};  ///< Further ones.
};

/// The head of an answer that comes in parts.
struct StreamHead {
  int status = 200;
  std::string reason{};  ///< Empty: the usual one.
  HttpFields headers{};
  /// Of all parts together [bytes]; nothing where that is not known yet.
  std::optional<std::uint64_t> length{};
};

struct RequestSpan;

/// One request and its answer: either respond() once, or begin(), any number of send_part() and
/// end(). Loop thread. A failure to send means that the client has gone, or has taken nothing for
/// so long that it was given up.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  [[nodiscard]] virtual const HttpRequest& request() const = 0;
  /// What it is in a trace; null where it is in none.
  [[nodiscard]] virtual std::shared_ptr<RequestSpan> span() const { return nullptr; }

  virtual Task<Result<void>> respond(HttpResponse response) = 0;

  /// Sends the head of an answer that comes in parts, and the first of them where it is not empty.
  virtual Task<Result<void>> begin(StreamHead head, std::string part) = 0;
  /// Sends some of it and returns when the network has taken it. Not empty.
  virtual Task<Result<void>> send_part(std::string part) = 0;
  /// Sends what is left of it, which may be nothing.
  virtual Task<Result<void>> end(std::string part) = 0;
  /// The rest of the answer will not come: hangs up, by which the client sees that.
  virtual void drop() = 0;

  /// begin() for parts of this type that are made as they are sent; nobody shall store them.
  /// @param further  Headers beside those that this takes.
  Task<Result<void>> begin_stream(std::string content_type, HttpFields further = {});
  Task<Result<void>> end_stream() { return end({}); }

  /// Whether the client has hung up.
  [[nodiscard]] virtual bool gone() const = 0;
  /// `notify` is called once when the client hangs up; a null one takes the former back.
  virtual void on_gone(std::function<void()> notify) = 0;
};

/// The value of a parameter in a query, decoded; nothing where it is not there.
[[nodiscard]] std::optional<std::string> query_value(std::string_view query, std::string_view name);

/// `%2F` and such made characters again; a '%' that begins no code stays.
[[nodiscard]] std::string percent_decode(std::string_view text);

}  // namespace heddle::gateway
