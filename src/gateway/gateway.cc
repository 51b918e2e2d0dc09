#include "gateway/gateway.h"

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <fmt/format.h>

#include "api/error_text.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/descriptor_limit.h"
#include "base/log.h"
#include "base/siphash.h"
#include "gateway/api_keys.h"
#include "gateway/connection_budget.h"
#include "gateway/context.h"
#include "gateway/device_handlers.h"
#include "gateway/gatekeeper.h"
#include "gateway/handlers.h"
#include "gateway/http_server.h"
#include "gateway/idle_models.h"
#include "gateway/job_setup.h"
#include "gateway/openapi.h"
#include "gateway/passed_exchange.h"
#include "gateway/renaming.h"
#include "gateway/router.h"
#include "gateway/task.h"
#include "gateway/web_rules.h"

#include <unistd.h>

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

std::vector<Endpoint> all_endpoints() {
  std::vector<Endpoint> all = status_endpoints();
  for (auto* part : {&model_endpoints,
                     &profile_endpoints,
                     &adapter_endpoints,
                     &host_endpoints,
                     &inference_endpoints,
                     &message_endpoints,
                     &ollama_endpoints,
                     &ollama_model_endpoints,
                     &response_endpoints,
                     &embedding_endpoints,
                     &rerank_endpoints,
                     &file_endpoints,
                     &batch_endpoints,
                     &proxy_endpoints,
                     &usage_endpoints,
                     &log_endpoints,
                     &event_endpoints,
                     &web_endpoints}) {
    const std::vector<Endpoint> more = (*part)();
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

std::shared_ptr<const Routing> make_routing() {
  Routing routing{.endpoints = all_endpoints()};
  for (const Endpoint& endpoint : routing.endpoints) {
    routing.routes.push_back(endpoint.route);
  }
  return std::make_shared<const Routing>(std::move(routing));
}

/// Between two savings of what keys have used.
constexpr Duration kUsageInterval = 60s;

/// What an answer that was given up gets to tell its client.
constexpr Duration kLastWords = 500ms;

/// What the last spans get to reach their collector, once nobody waits for an answer.
constexpr Duration kLeastFlush = 100ms;
constexpr Duration kMostFlush = 1s;

/// Passes an exchange on, remembers the status of its answer, and has the trace that it is in.
class CountedExchange final : public PassedExchange {
 public:
  explicit CountedExchange(HttpExchange& inner) : PassedExchange(inner) {}

  [[nodiscard]] int status() const { return status_; }
  /// Headers of the answer beside its own.
  void set_headers(HttpFields headers) { headers_ = std::move(headers); }
  /// It is in a trace from here on.
  void set_span(std::shared_ptr<RequestSpan> span) { span_ = std::move(span); }
  [[nodiscard]] std::shared_ptr<RequestSpan> span() const override { return span_; }

  Task<Result<void>> respond(HttpResponse response) override {
    status_ = response.status;
    response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
    return PassedExchange::respond(std::move(response));
  }
  Task<Result<void>> begin(StreamHead head, std::string part) override {
    status_ = head.status;
    head.headers.insert(head.headers.end(), headers_.begin(), headers_.end());
    return PassedExchange::begin(std::move(head), std::move(part));
  }

 private:
  std::shared_ptr<RequestSpan> span_{};
  HttpFields headers_{};
  int status_ = 499;  ///< The client left without one.
};

/// Whether it asks a model something, which is what traces tell of.
bool is_traced(const Endpoint& endpoint) {
  const Route& route = endpoint.route;
  return (endpoint.access == Access::kInference && route.method == "POST") ||
         route.path.starts_with("/upstream/");
}

/// Whether it counts for the quota of its key.
bool is_counted(const Endpoint& endpoint) {
  return endpoint.access == Access::kInference && endpoint.route.method == "POST";
}

/// What the usage of a key goes under: its name, or digits that stay the same and do not tell it.
std::string account_of(const config::ApiKey& key) {
  if (!key.name.empty()) {
    return key.name;
  }
  const Digest digest = siphash({}, std::as_bytes(std::span(key.key)));
  return fmt::format("key-{:08x}", static_cast<std::uint32_t>(digest.high ^ digest.low));
}

std::uint64_t entropy() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

std::string digits_of(const Digest& digest) {
  return std::to_string(digest.high) + "." + std::to_string(digest.low);
}

/// The keys, each with what it may do. `secret` keeps keys out of what is made of them. What owns
/// files and batches is made with what their book has for that, if there is one.
std::vector<ApiKeys::Key> api_keys(const config::Config& config,
                                   const SipKey& secret,
                                   const batches::Book* book) {
  std::vector<ApiKeys::Key> keys;
  for (const config::ApiKey& known : config.api_keys) {
    const Digest digest = siphash(secret, std::as_bytes(std::span(known.key)));
    Principal principal{.role = known.role,
                        .name = known.name,
                        .tenant = digits_of(digest),
                        .account = account_of(known),
                        .key_digest = digits_of(siphash({}, std::as_bytes(std::span(known.key)))),
                        .requests_per_minute = known.requests_per_minute,
                        .tokens_per_minute = known.tokens_per_minute};
    if (known.priority) {
      principal.least_priority = static_cast<std::int32_t>(*known.priority);
    }
    if (book != nullptr) {
      principal.owner = digits_of(siphash(book->salt(), std::as_bytes(std::span(known.key))));
    }
    keys.push_back({.text = known.key, .principal = std::move(principal)});
  }
  return keys;
}

/// Whose files and batches there can be.
std::map<std::string, Principal> owners_of(const std::vector<ApiKeys::Key>& keys) {
  std::map<std::string, Principal> owners;
  for (const ApiKeys::Key& key : keys) {
    owners.emplace(key.principal.owner, key.principal);
  }
  if (keys.empty()) {
    owners.emplace("", Principal());
  }
  return owners;
}

/// Has an endpoint answer. Only where a name may stand for another is the body looked at before.
Task<void> handle(std::shared_ptr<Context> context,
                  const Endpoint& endpoint,
                  HttpExchange& http,
                  std::string id) {
  if (is_counted(endpoint) && !context->names.empty()) {
    return answer_under_names(std::move(context), http, endpoint.handler, std::move(id));
  }
  return endpoint.handler(std::move(context), http, std::move(id));
}

/// Has the endpoint of a line answer it.
Task<void> ask_endpoint(std::shared_ptr<Context> context,
                        std::shared_ptr<const Routing> routing,
                        HttpExchange& http) {
  const std::string& path = http.request().path;
  const std::optional<std::size_t> route = find_route(routing->routes, "POST", path);
  HEDDLE_CHECK(route.has_value());  // Batches of other endpoints are refused.
  co_await handle(std::move(context), routing->endpoints[*route], http, std::string());
}

std::string machine_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string fingerprint(const std::string& version, std::uint64_t salt) {
  return "fp_" + version + "_" + std::to_string(salt % 1'000'000);
}

}  // namespace

class Gateway::Impl {
 public:
  Impl(asio::io_context& loop, core::Serving& serving, Metrics& metrics, const Options& options)
      : pool_(loop, options.text_threads),
        grammars_(loop, options.grammars, {entropy(), entropy()}, {}),
        context_(std::make_shared<Context>(
            Context{.loop = loop,
                    .serving = &serving,
                    .pool = pool_,
                    .grammars = grammars_,
                    .catalog = Catalog(loop, pool_, options.open_text),
                    .traces = RequestTraces(options.traces_max),
                    .metrics = GatewayMetrics(metrics),
                    .limits = {},
                    .version = options.version,
                    .fingerprint = fingerprint(options.version, entropy()),
                    .comment_interval = options.comment_interval,
                    .backlog_max = options.backlog_max,
                    .rng = Rng(entropy()),
                    .now = options.now ? options.now : std::function<Instant()>(steady_now),
                    .started_s = wall_clock_ms() / 1000,
                    .last_request = options.requests_after.value(),
                    .upstream = std::make_unique<UpstreamPool>(
                        loop, UpstreamPool::Options{.idle_max = 1024, .carry = options.carry})})),
        routing_(make_routing()),
        read_context_(options.read_context),
        keep_usage_(options.keep_usage),
        gatekeeper_(std::make_shared<Gatekeeper>(routing_)),
        drain_timer_(loop),
        close_timer_(loop) {
    context_->adapters = options.adapters;
    context_->openapi = openapi_json(*routing_, options.version);
    if (options.batches != nullptr) {
      context_->batches = std::make_unique<BatchRunner>(
          loop, options.batches, [routing = routing_](auto context, HttpExchange& http) {
            return ask_endpoint(std::move(context), routing, http);
          });
    }
    context_->usage.restore(options.past_usage);
  }

  ~Impl() {
    if (keep_usage_) {
      keep_usage_(context_->usage.take_unsaved());
    }
    context_->serving = nullptr;
    context_->tracer.reset();  // Its metrics may end with this.
  }

  /// Has requests traced, where there is a collector.
  Result<void> trace(const config::TracingConfig& config, Metrics& metrics);
  Result<void> listen(const config::Config& config);
  void assign(const config::Config& config);
  void reload(const config::Config& config) {
    assign(config);
    server_->reload(config.tls);
    config::TracingConfig before = std::exchange(tracing_, config.tracing);
    before.sample = config.tracing.sample;
    if (before != config.tracing) {
      log::warning("tracing has changed, which takes a restart, but for its sample");
    }
  }
  void drain(Duration patience, std::function<void()> drained);

  [[nodiscard]] const HttpServer& server() const { return *server_; }
  [[nodiscard]] Quotas& quotas() { return context_->quotas; }

 private:
  TextPool pool_;
  GrammarTrials grammars_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<const Routing> routing_;
  std::function<std::int64_t(const config::ModelConfig&)> read_context_;
  std::function<void(const std::vector<spec::KeyUsage>&)> keep_usage_;
  SipKey tenant_secret_{entropy(), entropy()};
  std::shared_ptr<Gatekeeper> gatekeeper_;
  std::vector<config::ListenAddress> listen_{};  ///< That was asked for at the start.
  config::TracingConfig tracing_{};              ///< As it was read last.
  asio::steady_timer drain_timer_;
  asio::steady_timer close_timer_;
  std::unique_ptr<HttpServer> server_{};
};

namespace {

Task<void> respond_options(HttpExchange& http, std::string allow) {
  HttpResponse response{.status = 204};
  response.headers.emplace_back("Allow", std::move(allow));
  (void)co_await http.respond(std::move(response));  // Nobody else wants it.
}

/// Answers a request beyond the quota of its key.
Task<void> respond_over_quota(HttpExchange& http, const QuotaVerdict& verdict) {
  co_await respond_error(http, over_quota(verdict));
}

/// Has an endpoint answer, where the quota of the key allows it.
Task<void> answer(std::shared_ptr<Context> context,
                  const Endpoint& endpoint,
                  CountedExchange& http,
                  std::string id) {
  if (is_counted(endpoint)) {
    QuotaVerdict verdict = context->quotas.admit(http.request().principal, context->now());
    http.set_headers(std::move(verdict.headers));
    if (!verdict.admitted) {
      co_await respond_over_quota(http, verdict);
      co_return;
    }
  }
  co_await handle(std::move(context), endpoint, http, std::move(id));
}

/// Finds who answers, and lets them. Values only: the gateway may be gone before it ends.
Task<void> dispatch(std::shared_ptr<Context> context,
                    std::shared_ptr<const Routing> routing,
                    HttpExchange& connection) {
  CountedExchange http(connection);
  const HttpRequest& request = http.request();
  const std::string allow =
      request.method == "OPTIONS" ? allowed_methods(routing->routes, request.path) : std::string();
  std::string_view label = "unknown";
  if (context->serving == nullptr) {
    co_await respond_error(http, api::unavailable("the server is shutting down"));
  } else if (!allow.empty()) {
    co_await respond_options(http, allow);
  } else {
    auto matched = match_route(routing->routes, request.method, request.path);
    if (auto* none = std::get_if<NoMatch>(&matched)) {
      HttpResponse response{.status = none->error.status,
                            .body = api::error_text(none->error, request.path, request.request_id)};
      if (!none->allow.empty()) {
        response.headers.emplace_back("Allow", none->allow);
      }
      (void)co_await http.respond(std::move(response));  // Nobody else wants it.
    } else {
      Match match = std::get<Match>(std::move(matched));
      const Endpoint& endpoint = routing->endpoints[match.route];
      label = endpoint.route.path;
      if (context->tracer != nullptr && is_traced(endpoint)) {
        http.set_span(context->tracer->begin(request, label, context->now()));
      }
      co_await answer(context, endpoint, http, std::move(match.id));
    }
  }
  if (http.span() != nullptr && context->tracer != nullptr) {
    context->tracer->end(*http.span(), http.status(), context->now());
  }
  context->metrics.answered(label, http.status());
}

}  // namespace

namespace {

/// With as many connections as there are descriptors for.
HttpServer::Options server_options(const config::Config& config) {
  HttpServer::Options options{.listen = config.listen,
                              .limits = config.limits,
                              .tls = config.tls,
                              .probes = {"/health", "/healthz", "/readyz"}};
  const auto engines = std::count_if(config.models.begin(),
                                     config.models.end(),
                                     [](const auto& model) { return model.engine.has_value(); });
  const auto wanted = static_cast<std::size_t>(config.limits.connections);
  const DescriptorNeeds needs{
      .limit = descriptor_limit(),
      .open = open_descriptors(),
      .processes = config.devices.size() + static_cast<std::size_t>(engines),
      // One that links between hosts carry has a pair of sockets.
      .of_a_connection =
          1U + (config.tls ? 2U : 0U) + (engines > 0 ? (config.cluster ? 2U : 1U) : 0U),
      .connections = wanted};
  const ConnectionBudget budget = connection_budget(needs);
  options.limits.connections = static_cast<std::int64_t>(budget.connections);
  options.overflow = budget.overflow;
  if (budget.connections < wanted) {
    log::warning("fewer connections than limits.connections, as few descriptors are allowed",
                 {{"connections", budget.connections},
                  {"wanted", wanted},
                  {"descriptors", needs.limit},
                  {"right", "LimitNOFILE or ulimit -n of " + std::to_string(budget.right_limit)}});
  }
  return options;
}

}  // namespace

Result<void> Gateway::Impl::trace(const config::TracingConfig& config, Metrics& metrics) {
  tracing_ = config;
  if (!config.collector) {
    return {};
  }
  Result<std::unique_ptr<Tracer>> tracer = Tracer::start(
      config, {.version = context_->version, .machine = machine_name()}, Rng(entropy()), metrics);
  if (!tracer) {
    return tracer.error();
  }
  context_->tracer = std::move(*tracer);
  return {};
}

namespace {

/// Has what keys have used kept from time to time.
Task<void> keep_usage(std::shared_ptr<Context> context,
                      std::function<void(const std::vector<spec::KeyUsage>&)> keep) {
  asio::steady_timer timer(context->loop);
  while (context->serving != nullptr) {
    timer.expires_after(kUsageInterval);
    co_await timer.async_wait(kAwait);
    if (context->serving == nullptr) {
      break;
    }
    const std::vector<spec::KeyUsage> rows = context->usage.take_unsaved();
    std::function<void()> work = [&rows, &keep] { keep(rows); };
    if (!rows.empty()) {
      co_await context->pool.run(std::move(work));
    }
  }
}

/// Holds what the catalog is a part of while it learns.
Task<void> learn_contexts(std::shared_ptr<Context> context,
                          std::function<std::int64_t(const config::ModelConfig&)> look) {
  const std::vector<std::shared_ptr<CatalogModel>> models = context->catalog.models();
  for (const std::shared_ptr<CatalogModel>& model : models) {
    if (context->serving == nullptr) {
      co_return;  // The gateway has gone, and its threads with it.
    }
    co_await context->catalog.learn_context(model, look);
  }
}

}  // namespace

Result<void> Gateway::Impl::listen(const config::Config& config) {
  listen_ = config.listen;
  assign(config);
  auto gatekeeper = [keeper = gatekeeper_](const HttpHead& head) { return keeper->admit(head); };
  auto handler = [context = context_, routing = routing_](HttpExchange& http) {
    return dispatch(context, routing, http);
  };
  Result<std::unique_ptr<HttpServer>> server = HttpServer::listen(
      context_->loop, server_options(config), std::move(gatekeeper), std::move(handler));
  if (!server) {
    return server.error();
  }
  server_ = std::move(server).value();
  spawn(context_->loop, unload_expired(context_));
  spawn(context_->loop, keep_device_history(context_));
  if (keep_usage_) {
    spawn(context_->loop, keep_usage(context_, keep_usage_));
  }
  if (context_->batches != nullptr) {
    spawn(context_->loop, BatchRunner::run(context_));
  }
  return {};
}

void Gateway::Impl::assign(const config::Config& config) {
  context_->limits = config.limits;
  if (context_->tracer != nullptr) {
    context_->tracer->set_sample(config.tracing.sample);
  }
  context_->keys_asked = !config.api_keys.empty();
  batches::Book* const book =
      context_->batches == nullptr ? nullptr : context_->batches->book().get();
  std::vector<ApiKeys::Key> keys = api_keys(config, tenant_secret_, book);
  if (context_->batches != nullptr) {
    context_->batches->assign(owners_of(keys), config);
  }
  gatekeeper_->assign(ApiKeys(std::move(keys)),
                      WebRules({.listen = listen_,
                                .keys_asked = context_->keys_asked,
                                .allowed_hosts = config.allowed_hosts,
                                .cors_origins = config.cors_origins,
                                .machine = machine_name()}));
  std::set<std::string> removed;
  for (const std::shared_ptr<CatalogModel>& model : context_->catalog.models()) {
    removed.insert(model->config.id);
  }
  context_->catalog.assign(config.models, context_->serving->models());
  context_->peers.assign(config.peers);
  context_->names.assign(config);
  context_->list_aliases = config.list_aliases;
  if (auto paths = config::PathPatterns::parse(config.ignore_paths)) {
    context_->ignored_paths = std::move(*paths);
  }
  spawn(context_->loop, learn_contexts(context_, read_context_));
  for (const std::shared_ptr<CatalogModel>& model : context_->catalog.models()) {
    removed.erase(model->config.id);
  }
  for (const std::string& model : removed) {
    context_->metrics.forget(model);
  }
}

/// Sends what traces are not sent yet, within what is left of the patience; then calls `done`.
void flush_traces(const std::shared_ptr<Context>& context,
                  Instant deadline,
                  std::function<void()> done) {
  if (context->tracer == nullptr) {
    done();
    return;
  }
  const Duration patience = std::clamp(deadline - context->now(), kLeastFlush, kMostFlush);
  context->tracer->flush(patience, [context, done = std::move(done)] {
    asio::post(context->loop, [context, done] {
      if (context->serving != nullptr) {  // Else nobody waits for it.
        done();
      }
    });
  });
}

/// Answers get `patience`, then the time to say that they have failed.
void Gateway::Impl::drain(Duration patience, std::function<void()> drained) {
  context_->draining = true;
  server_->drain([context = context_,
                  deadline = context_->now() + patience,
                  drained = std::move(drained)] { flush_traces(context, deadline, drained); });
  close_timer_.expires_after(patience + kLastWords);
  close_timer_.async_wait([this, context = context_](const boost::system::error_code& stopped) {
    if (!stopped && context->serving != nullptr) {  // Else this is gone.
      server_->close();
    }
  });
  drain_timer_.expires_after(patience);
  drain_timer_.async_wait([context = context_](const boost::system::error_code& stopped) {
    if (stopped) {
      return;
    }
    std::vector<RunningRequest*> live;
    for (RunningRequest& request : context->live) {
      live.push_back(&request);
    }
    for (RunningRequest* request : live) {
      request->fail({.code = Code::kUnavailable,
                     .message = "the server is shutting down and could not finish this answer"});
    }
  });
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

Result<std::unique_ptr<Gateway>> Gateway::start(asio::io_context& loop,
                                                core::Serving& serving,
                                                Metrics& metrics,
                                                const config::Config& config,
                                                Options options) {
  HEDDLE_CHECK(options.open_text != nullptr && options.grammars != nullptr);
  auto impl = std::make_unique<Impl>(loop, serving, metrics, options);
  if (const Result<void> traced = impl->trace(config.tracing, metrics); !traced) {
    return traced.error();
  }
  const Result<void> listening = impl->listen(config);
  if (!listening) {
    return listening.error();
  }
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

const std::vector<config::ListenAddress>& Gateway::addresses() const {
  return impl_->server().addresses();
}

Quotas& Gateway::quotas() {
  return impl_->quotas();
}

void Gateway::reload(const config::Config& config) {
  impl_->reload(config);
}

void Gateway::drain(Duration patience, std::function<void()> drained) {
  impl_->drain(patience, std::move(drained));
}

}  // namespace heddle::gateway
