#include <algorithm>
#include <utility>

#include "api/responses.h"
#include "base/units.h"
#include "gateway/device_handlers.h"
#include "gateway/engine_handlers.h"
#include "gateway/handlers.h"
#include "gateway/planner_handlers.h"
#include "gateway/task.h"
#include "gateway/web_handlers.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr std::size_t kTracesListed = 100;

Task<void> health(std::shared_ptr<Context>, HttpExchange& http, std::string) {
  co_await respond_json(http, R"({"status":"ok"})");
}

std::string in_one_line(const std::vector<std::string>& sentences) {
  std::string text;
  for (const std::string& sentence : sentences) {
    text += (text.empty() ? "" : "; ") + sentence;
  }
  return text;
}

Task<void> ready(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const std::vector<core::DeviceStatus> devices = context->serving->devices();
  const std::vector<std::string> troubles = context->serving->troubles();
  const bool up =
      std::any_of(devices.begin(), devices.end(), [](const auto& device) { return device.up; });
  if (context->draining) {
    co_await respond_error(http, api::unavailable("the server is shutting down"));
  } else if (!up) {
    co_await respond_error(http, api::unavailable("no device is up yet"));
  } else if (!troubles.empty()) {
    co_await respond_error(http, api::unavailable(in_one_line(troubles)));
  } else {
    co_await respond_json(http, R"({"status":"ok"})");
  }
}

Task<void> version(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  spec::JsonWriter json;
  json.begin_object().key("version").string(context->version).end_object();
  co_await respond_json(http, std::move(json).take());
}

Task<void> openapi(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await respond_json(http, context->openapi);
}

Task<void> metrics(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (std::optional<std::string> model = query_value(http.request().query, "model")) {
    co_await respond_engine_metrics(std::move(context), http, std::move(*model));
    co_return;
  }
  context->metrics.publish(*context->serving);
  context->metrics.publish_kv_blocks(*context->serving, context->catalog);
  HttpResponse response{.body = context->metrics.expose(),
                        .content_type = "text/plain; version=0.0.4; charset=utf-8"};
  (void)co_await http.respond(std::move(response));  // Nobody else wants it.
}

/// A trace as it is now: what still runs is told from its records.
std::string tell_json(const Context& context, const RequestTrace& trace) {
  if (trace.records.empty() && !trace.external) {
    return trace_json(trace);
  }
  RequestTrace told = trace;
  const std::map<DeviceId, std::string> names = device_names(*context.serving);
  const auto tell_part = [&](const auto& request) {
    const auto found = request.device ? names.find(*request.device) : names.end();
    told.parts.push_back(tell(request, found == names.end() ? "" : found->second));
  };
  for (const auto& record : trace.records) {
    tell_part(*record);
  }
  if (trace.external) {
    tell_part(*trace.external);
  }
  return trace_json(told);
}

/// An admin sees all of them, everybody else their own.
RequestTraces::Whose whose(const HttpRequest& request) {
  return request.principal.role == config::Role::kAdmin
             ? RequestTraces::Whose()
             : RequestTraces::Whose(request.principal.tenant);
}

Task<void> request_trace(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  const RequestTrace* trace = context->traces.find(id, whose(http.request()));
  if (trace == nullptr) {
    api::ApiError error =
        api::invalid_request("id", "request \"" + id + "\" is not among the last that were served");
    error.status = 404;
    error.code = "unknown_request";
    co_await respond_error(http, std::move(error));
    co_return;
  }
  co_await respond_json(http, tell_json(*context, *trace));
}

Task<void> request_traces(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  std::string json = R"({"requests":[)";
  for (const RequestTrace* trace : context->traces.latest(kTracesListed, whose(http.request()))) {
    json += json.back() == '[' ? "" : ",";
    json += tell_json(*context, *trace);
  }
  co_await respond_json(http, json + "]}");
}

/// The models and devices, line by line.
std::string now(const Context& context) {
  std::string text = "models\n";
  std::string example;
  for (const core::ModelStatus& status : context.serving->models()) {
    const std::shared_ptr<CatalogModel> model = context.catalog.find(status.id);
    if (!model || model->config.unlisted) {
      continue;
    }
    text += "  " + model->config.id + "  " + std::string(residency_name(status.residency));
    text += status.host_cached ? ", in host memory\n" : "\n";
    example = example.empty() ? model->config.id : example;
  }
  text += "\ndevices\n";
  for (const core::DeviceStatus& device : context.serving->devices()) {
    const auto bytes = [&](std::int64_t pages) {
      return format_bytes(static_cast<std::uint64_t>(pages) * device.page_bytes);
    };
    text += "  " + device.name + "  " + (device.up ? "up" : "down") + ", " +
            bytes(device.usage.free + device.usage.of(ledger::LeaseKind::kKvCached).held) + " of " +
            bytes(device.usage.total) + " free\n";
  }
  return text + "\ntry\n  POST /v1/chat/completions  {\"model\": \"" + example +
         "\", \"messages\": [{\"role\": \"user\", \"content\": \"...\"}]}\n";
}

/// For whoever is at a terminal; browsers are sent to the page.
Task<void> index(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  if (http.request().accept.find("text/html") != std::string::npos) {
    (void)co_await http.respond(see_page());  // Nobody else wants it.
    co_return;
  }
  std::string page = "heddle " + context->version +
                     " is running: many language models behind one endpoint, with the APIs of "
                     "OpenAI, Anthropic and Ollama.\n\n";
  page += context->keys_asked ? "What there is, it tells those who send a key.\n" : now(*context);
  page +=
      "\nsee\n  /ui/ (a page)  /openapi.json  /v1/models  /running  /metrics  /api/devices  "
      "/api/requests  "
      "/api/decisions\n";
  HttpResponse response{.body = std::move(page), .content_type = "text/plain; charset=utf-8"};
  (void)co_await http.respond(std::move(response));  // Nobody else wants it.
}

}  // namespace

std::vector<Endpoint> status_endpoints() {
  return {{{"GET", "/"}, Access::kOpen, index},
          {{"GET", "/health"}, Access::kOpen, health},
          {{"GET", "/healthz"}, Access::kOpen, health},
          {{"GET", "/readyz"}, Access::kOpen, ready},
          {{"GET", "/version"}, Access::kAny, version},
          {{"GET", "/api/version"}, Access::kAny, version},
          {{"GET", "/openapi.json"}, Access::kAny, openapi},
          {{"GET", "/metrics"}, Access::kMetrics, metrics},
          {{"GET", "/api/devices"}, Access::kMetrics, devices},
          {{"GET", "/api/devices/history"}, Access::kMetrics, device_history},
          {{"GET", "/api/engines"}, Access::kMetrics, list_engines},
          {{"GET", "/api/decisions"}, Access::kAdmin, list_decisions},
          {{"GET", "/api/forecasts"}, Access::kMetrics, list_forecasts},
          {{"GET", "/api/requests"}, Access::kInference, request_traces},
          {{"GET", "/api/requests/{id}"}, Access::kInference, request_trace}};
}

}  // namespace heddle::gateway
