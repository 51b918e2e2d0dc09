#include "gateway/status_server.h"

#include <utility>

#include "api/error.h"
#include "gateway/http_server.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace {

/// What answers need, for as long as one of them runs.
struct Told {
  Metrics& metrics;
  std::function<std::vector<std::string>()> troubles;
};

std::string joined_troubles(const std::vector<std::string>& troubles) {
  std::string all;
  for (const std::string& trouble : troubles) {
    all += (all.empty() ? "" : "; ") + trouble;
  }
  return all;
}

HttpResponse answer_status(const Told& told, const HttpRequest& request) {
  if (request.method != "GET") {
    return {.status = 405, .headers = {{"Allow", "GET"}}};
  }
  if (request.path == "/metrics") {
    return {.body = told.metrics.expose(),
            .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  }
  const std::vector<std::string> troubles =
      request.path == "/readyz" ? told.troubles() : std::vector<std::string>{};
  if (!troubles.empty()) {
    const api::ApiError error = api::unavailable(joined_troubles(troubles));
    return {.status = error.status, .body = api::to_json(error)};
  }
  if (request.path == "/readyz" || request.path == "/healthz" || request.path == "/health") {
    return {.body = R"({"status":"ok"})"};
  }
  return {.status = 404,
          .body = api::to_json({.status = 404,
                                .message = "there are /metrics, /healthz and /readyz here",
                                .type = "invalid_request_error"})};
}

}  // namespace

class StatusServer::Impl {
 public:
  Result<void> listen(boost::asio::io_context& loop,
                      const config::ListenAddress& address,
                      Metrics& metrics,
                      std::function<std::vector<std::string>()> troubles) {
    const auto told =
        std::make_shared<const Told>(Told{.metrics = metrics, .troubles = std::move(troubles)});
    auto server = HttpServer::listen(
        loop,
        {.listen = {address}, .probes = {"/healthz", "/readyz"}},
        [](const HttpHead& /*head*/) { return Admission{.principal = Principal{}}; },
        [told](HttpExchange& http) -> Task<void> {
          (void)co_await http.respond(
              answer_status(*told, http.request()));  // Nobody else wants it.
        });
    if (!server) {
      return server.error();
    }
    server_ = std::move(*server);
    return {};
  }

  [[nodiscard]] const config::ListenAddress& address() const { return server_->addresses()[0]; }

 private:
  std::unique_ptr<HttpServer> server_{};
};

Result<std::unique_ptr<StatusServer>> StatusServer::listen(
    boost::asio::io_context& loop,
    const config::ListenAddress& address,
    Metrics& metrics,
    std::function<std::vector<std::string>()> troubles) {
  auto impl = std::make_unique<Impl>();
  if (const Result<void> done = impl->listen(loop, address, metrics, std::move(troubles)); !done) {
    return done.error();
  }
  return std::unique_ptr<StatusServer>(new StatusServer(std::move(impl)));
}

StatusServer::StatusServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StatusServer::~StatusServer() = default;

const config::ListenAddress& StatusServer::address() const {
  return impl_->address();
}

}  // namespace heddle::gateway
