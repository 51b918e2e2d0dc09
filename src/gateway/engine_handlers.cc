#include "gateway/engine_handlers.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gateway/task.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr Duration kMetricsTimeout = 5s;
constexpr std::size_t kMetricsMax = 16U << 20U;

double milliseconds(Duration span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

/// One way of suspending it.
void write_cost(spec::JsonWriter& json,
                spec::SuspendLevel level,
                const core::SuspendCost& cost,
                std::uint64_t page_bytes) {
  const auto bytes = [page_bytes](std::int64_t pages) {
    return static_cast<std::uint64_t>(pages) * page_bytes;
  };
  json.begin_object().key("level").string(spec::name(level)).key("times").integer(cost.times);
  json.key("out_ms").number(milliseconds(cost.out)).key("in_ms").number(milliseconds(cost.in));
  json.key("held_bytes").integer(bytes(cost.held_pages));
  json.key("host_bytes").integer(bytes(cost.host_pages));
  json.key("insufficient").integer(cost.insufficient).key("failures").integer(cost.failures);
  json.end_object();
}

/// The devices that the engine is on.
std::vector<std::string> names_of(const core::EngineStatus& engine,
                                  const std::vector<core::DeviceStatus>& devices) {
  std::vector<std::string> names;
  for (const core::DeviceStatus& device : devices) {
    if (device.id == engine.device || std::ranges::count(engine.further, device.id) > 0) {
      names.push_back(device.name);
    }
  }
  return names;
}

/// One engine, which listens at `url`; empty: where its host alone knows.
void write_engine(spec::JsonWriter& json,
                  const core::EngineStatus& engine,
                  const CatalogModel& model,
                  const core::DeviceStatus& device,
                  const std::vector<std::string>& devices,
                  const std::string& url,
                  Instant now) {
  const auto bytes = [&device](std::int64_t pages) {
    return static_cast<std::uint64_t>(pages) * device.page_bytes;
  };
  const std::int64_t places = std::ssize(devices);
  json.begin_object().key("model").string(model.config.id);
  if (model.config.engine) {
    json.key("kind").string(spec::name(model.config.engine->kind));
  }
  if (!url.empty()) {
    json.key("url").string(url);
  }
  json.key("device").string(device.name).key("devices").begin_array();
  for (const std::string& name : devices) {
    json.string(name);
  }
  json.end_array().key("state").string(core::name(engine.state));
  json.key("level");
  if (engine.level) {
    json.string(spec::name(*engine.level));
  } else {
    json.null();
  }
  json.key("since_ms").number(engine.since == Instant{} ? 0 : milliseconds(now - engine.since));
  json.key("reserved_bytes").integer(bytes(places * engine.reserved_pages));
  json.key("held_bytes").integer(bytes(places * engine.held_pages));
  json.key("host_bytes").integer(bytes(engine.host_pages));
  if (engine.kv_limit_pages > 0) {
    json.key("kv_limit_bytes").integer(bytes(engine.kv_limit_pages));
    json.key("kv_used_bytes").integer(bytes(engine.kv_used_pages));
  }
  json.key("starts").integer(engine.starts).key("deaths").integer(engine.deaths);
  json.key("costs").begin_array();
  for (std::size_t i = 0; i < engine.costs.size(); ++i) {
    const core::SuspendCost& cost = engine.costs.at(i);
    if (cost != core::SuspendCost{}) {
      write_cost(json, static_cast<spec::SuspendLevel>(i), cost, device.page_bytes);
    }
  }
  json.end_array().key("trouble");
  if (engine.trouble.empty()) {
    json.null();
  } else {
    json.string(api::without_paths(engine.trouble));
  }
  json.end_object();
}

/// Asks an engine for its metrics.
Task<Result<HttpResponse>> fetch_metrics(Context& context, core::EngineRoute route) {
  const UpstreamRequest request{.method = "GET", .target = "/metrics"};
  const std::unique_ptr<UpstreamExchange> engine = context.upstream->exchange(std::move(route));
  const Result<void> sent = co_await engine->send(request);
  if (!sent) {
    co_return sent.error();
  }
  const Instant deadline = context.now() + kMetricsTimeout;
  std::string body;
  while (!engine->complete()) {
    const Duration left = deadline - context.now();
    if (left <= Duration{} || body.size() > kMetricsMax) {
      co_return Error{.code = Code::kDeadlineExceeded,
                      .message = "the engine did not give its metrics in time"};
    }
    const auto news = co_await engine->receive(left);
    if (!news) {
      co_return news.error();
    }
    body += engine->take_body();
  }
  const UpstreamHead& head = *engine->head();
  HttpResponse response{.status = head.status, .body = std::move(body)};
  response.content_type = field_value(head.headers, "content-type");
  co_return response;
}

}  // namespace

Task<void> list_engines(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const std::vector<core::DeviceStatus> devices = context->serving->devices();
  spec::JsonWriter json;
  json.begin_object().key("engines").begin_array();
  for (const core::EngineStatus& engine : context->serving->engines()) {
    const std::shared_ptr<CatalogModel> model = context->catalog.find(engine.model);
    const auto device = std::find_if(
        devices.begin(), devices.end(), [&](const auto& one) { return one.id == engine.device; });
    if (model && device != devices.end()) {
      std::string url;
      if (model->config.engine) {
        const core::EngineRoute route =
            context->upstream->route(model->id, engine.device, model->config.engine->upstream);
        url = route.address ? route.address->url() : "";
      }
      write_engine(json, engine, *model, *device, names_of(engine, devices), url, context->now());
    }
  }
  json.end_array().end_object();
  co_await respond_json(http, std::move(json).take());
}

Task<void> respond_engine_metrics(std::shared_ptr<Context> context,
                                  HttpExchange& http,
                                  std::string name) {
  const std::shared_ptr<CatalogModel> model = context->catalog.find(name);
  if (!model || !model->config.engine) {
    api::ApiError unknown = model
                                ? api::not_supported("model",
                                                     "\"" + name +
                                                         "\" has no engine of its own; its metrics "
                                                         "are among those of GET /metrics")
                                : api::model_not_found(name, context->catalog.listed_names());
    co_await respond_error(http, std::move(unknown));
    co_return;
  }
  const std::vector<core::EngineStatus> engines = context->serving->engines();
  const auto found = std::find_if(engines.begin(), engines.end(), [&model](const auto& engine) {
    return engine.model == model->id && engine.state == core::EngineState::kRunning;
  });
  if (found == engines.end()) {
    co_await respond_error(http,
                           api::unavailable("the engine of \"" + name +
                                            "\" does not run, and is not woken for "
                                            "its metrics"));
    co_return;
  }
  core::EngineRoute route =
      context->upstream->route(model->id, found->device, model->config.engine->upstream);
  Result<HttpResponse> response = co_await fetch_metrics(*context, std::move(route));
  if (!response) {
    co_await respond_error(http, api::from_error(response.error()));
    co_return;
  }
  (void)co_await http.respond(std::move(*response));  // Nobody else wants it.
}

}  // namespace heddle::gateway
