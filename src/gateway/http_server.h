#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "api/error.h"
#include "base/result.h"
#include "config/config.h"
#include "gateway/http_exchange.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// What is known of a request before its body is read.
struct HttpHead {
  std::string_view method{};
  std::string_view path{};
  const HttpFields& headers;
};

/// Whether a request may come in.
struct Admission {
  api::Parsed<Principal> principal{};  ///< Who it is from, or why it is turned away.
  HttpFields headers{};                ///< HttpRequest::answer_headers, of the refusal too.
  std::string path{};                  ///< What the request's path was meant to be; empty: itself.
};

/// HTTP/1.1 on any number of addresses: keep-alive, pipelining, limits of size and time, and word
/// of clients that hang up. Where there is no room for another connection, one that is silent goes
/// (ConnectionTable). What requests mean is the handler's business. Loop thread.
class HttpServer {
 public:
  struct Options {
    std::vector<config::ListenAddress> listen{};
    config::Limits limits{};
    std::optional<config::TlsConfig> tls{};  ///< For those of `listen` that speak it.
    /// Connections beyond limits.connections that are taken in where all others are busy, to be
    /// told that there are too many, or to ask for one of `probes`.
    std::size_t overflow = 64;
    /// Paths that are answered however many connections there are.
    std::vector<std::string> probes{};
  };
  /// Answers one request. The exchange lives until the returned task is done.
  using Handler = std::function<Task<void>(HttpExchange&)>;
  /// Says who a request is from, or why it is turned away, before its body is read.
  using Gatekeeper = std::function<Admission(const HttpHead&)>;

  /// Begins to accept on `loop`. kUnavailable, naming the address, when one cannot be had;
  /// kInvalidArgument when one is to speak TLS without a certificate, or with one that is wrong.
  static Result<std::unique_ptr<HttpServer>> listen(boost::asio::io_context& loop,
                                                    const Options& options,
                                                    Gatekeeper gatekeeper,
                                                    Handler handler);
  /// Closes everything at once. Coroutines of connections end when the loop runs again, or with it.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The addresses that were bound, with the ports and schemes that were chosen.
  [[nodiscard]] const std::vector<config::ListenAddress>& addresses() const { return addresses_; }
  [[nodiscard]] std::size_t connections() const;

  /// Has later clients shown this certificate; one that is wrong is logged, and the one before
  /// kept. Which addresses speak TLS stays as it is.
  void reload(const std::optional<config::TlsConfig>& tls);

  /// Stops accepting, closes connections that are between requests, turns away requests that have
  /// not come whole, and closes the others after their answer. `drained` is called once, when none
  /// is left.
  void drain(std::function<void()> drained);
  /// Closes what is left. To be called after drain(), whose `drained` is called then.
  void close();

 private:
  class State;

  explicit HttpServer(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
  std::vector<config::ListenAddress> addresses_{};
};

}  // namespace heddle::gateway
