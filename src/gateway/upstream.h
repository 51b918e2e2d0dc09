#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "base/result.h"
#include "base/time.h"
#include "core/serving.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"
#include "net/carried_connection.h"

/// The HTTP client of the gateway: requests to external engines.
namespace heddle::gateway {

using namespace std::chrono_literals;

/// What an engine is asked.
struct UpstreamRequest {
  std::string method = "POST";
  std::string target{};  ///< Path and query, after the base path of the engine.
  /// End-to-end ones; Host, Content-Length and those of the connection are made here.
  HttpFields headers{};
  std::string body{};
};

/// The head of its answer.
struct UpstreamHead {
  int status = 0;
  std::string reason{};
  HttpFields headers{};  ///< End-to-end ones, in their order, but for Content-Length.
  std::optional<std::uint64_t> length{};

  /// Whether the body is a stream of server-sent events.
  [[nodiscard]] bool is_event_stream() const;
  /// Whether the body is as it is read, not compressed.
  [[nodiscard]] bool is_plain() const;
};

/// Whether two names of headers are the same: letters' case aside.
[[nodiscard]] bool is_same_field(std::string_view a, std::string_view b);

/// The value of the first header of this name, letters' case aside; empty where there is none.
[[nodiscard]] std::string_view field_value(const HttpFields& fields, std::string_view name);

/// The fields without those that are about one connection only (RFC 9110, 7.6.1) or that it makes
/// itself: Connection and what it names, Keep-Alive, Proxy-*, TE, Trailer, Transfer-Encoding,
/// Upgrade, Expect, Host, Content-Length.
[[nodiscard]] HttpFields end_to_end(HttpFields fields);

/// End-to-end headers of an answer as the client gets them: not its own name of the request, and
/// who may read it is said by this server alone.
[[nodiscard]] HttpFields passed_on(HttpFields fields);

/// One request to an engine and its answer. Loop thread; one coroutine at a time.
class UpstreamExchange {
 public:
  virtual ~UpstreamExchange() = default;

  /// Sends `request`, which lives until the exchange ends, over a connection that was kept, else
  /// over a new one. kUnavailable where the engine cannot be reached.
  virtual Task<Result<void>> send(const UpstreamRequest& request) = 0;

  enum class News : std::uint8_t {
    kNone,  ///< Nothing came within the patience.
    kSome,  ///< More of the answer has come.
  };
  /// Waits for more of the answer. A kept connection that turns out to have been closed, and gave
  /// nothing of an answer, is replaced by a new one once. kUnavailable where the engine closed or
  /// broke the connection before the answer was whole, kCorrupt where that is not HTTP.
  virtual Task<Result<News>> receive(Duration patience) = 0;

  /// Null until it has come. Whoever passes its headers on may take them.
  [[nodiscard]] virtual UpstreamHead* head() = 0;
  /// What has come of the body since the last call, chunks' framing taken off. Nothing more is read
  /// before the next receive().
  [[nodiscard]] virtual std::string take_body() = 0;
  /// Whether the answer is whole; its connection is then free for others.
  [[nodiscard]] virtual bool complete() const = 0;
  /// Where the engine listens, as its own host has it; known once it was connected to.
  [[nodiscard]] virtual const HttpAddress& address() const = 0;
  /// Whether what failed was the way to the engine's host, which says nothing of the engine.
  [[nodiscard]] virtual bool cut_off() const = 0;

  /// Hangs up; a call of the above that waits then fails with kCancelled.
  virtual void close() = 0;
};

class UpstreamConnections;

/// Connections to engines, kept for the next request. Loop thread.
class UpstreamPool {
 public:
  struct Options {
    Duration connect_timeout = 5s;
    Duration send_timeout = 30s;  ///< For an engine that takes nothing of a request.
    Duration idle_timeout = 30s;  ///< Of connections that are kept.
    std::size_t idle_max = 1024;  ///< Connections that are kept for one engine.
    std::size_t header_max = 64U << 10U;
    net::Carry carry{};  ///< To engines of other hosts. Empty: there are none.
  };

  UpstreamPool(boost::asio::io_context& loop, Options options);
  /// Closes the connections that are kept; exchanges go on.
  ~UpstreamPool();
  UpstreamPool(const UpstreamPool&) = delete;
  UpstreamPool& operator=(const UpstreamPool&) = delete;

  /// An exchange with the engine; sends nothing yet.
  [[nodiscard]] std::unique_ptr<UpstreamExchange> exchange(core::EngineRoute route);
  /// How the model's engine on the device is reached, which listens at `address` there.
  [[nodiscard]] core::EngineRoute route(ModelId model,
                                        DeviceId device,
                                        const HttpAddress& address) const;

  /// Connections that are kept.
  [[nodiscard]] std::size_t idle() const;

 private:
  std::shared_ptr<UpstreamConnections> connections_;
};

}  // namespace heddle::gateway
