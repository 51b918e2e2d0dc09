#include "gateway/planner_handlers.h"

#include <optional>
#include <utility>

#include "gateway/task.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

void write_name(spec::JsonWriter& json, std::string_view key, const std::string& name) {
  json.key(key);
  if (name.empty()) {
    json.null();
  } else {
    json.string(name);
  }
}

void write_ms(spec::JsonWriter& json, std::string_view key, std::optional<Duration> span) {
  json.key(key);
  if (span) {
    json.number(std::chrono::duration<double, std::milli>(*span).count());
  } else {
    json.null();
  }
}

}  // namespace

Task<void> list_decisions(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const std::optional<std::string> model = query_value(http.request().query, "model");
  const Instant now = context->now();
  spec::JsonWriter json;
  json.begin_object().key("decisions").begin_array();
  for (const core::NotedDecision& decision : context->serving->decisions()) {
    if (model && decision.model != *model && decision.for_model != *model) {
      continue;
    }
    json.begin_object();
    json.key("age_ms").number(std::chrono::duration<double, std::milli>(now - decision.at).count());
    json.key("decision").string(core::name(decision.kind)).key("model").string(decision.model);
    write_name(json, "device", decision.device);
    write_name(json, "for", decision.for_model);
    json.key("why").string(decision.why);
    write_ms(json, "first_token_ms", decision.first_token);
    write_ms(json, "first_token_was_ms", decision.first_token_was);
    json.end_object();
  }
  json.end_array().end_object();
  co_await respond_json(http, std::move(json).take());
}

Task<void> list_forecasts(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  spec::JsonWriter json;
  json.begin_object().key("models").begin_array();
  for (const core::ModelStatus& model : context->serving->models()) {
    const core::DemandStatus& demand = model.demand;
    json.begin_object().key("model").string(model.name);
    json.key("in_system").integer(model.requests_running + model.requests_waiting);
    json.key("expected_mean").number(demand.expected_mean);
    json.key("expected_peak").number(demand.expected_peak).key("error");
    if (demand.error) {
      json.number(*demand.error);
    } else {
      json.null();
    }
    json.key("starts").begin_object();
    for (std::size_t i = 0; i < core::kStartKinds; ++i) {
      json.key(core::name(static_cast<core::StartKind>(i))).integer(demand.starts.at(i));
    }
    json.end_object().key("loads").begin_object();
    for (std::size_t i = 0; i < core::kLoadReasons; ++i) {
      json.key(core::name(static_cast<core::LoadReason>(i))).integer(model.loads.at(i));
    }
    json.end_object().key("wasted_bytes").integer(demand.wasted_bytes).end_object();
  }
  json.end_array().end_object();
  co_await respond_json(http, std::move(json).take());
}

}  // namespace heddle::gateway
