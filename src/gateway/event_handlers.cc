#include <map>
#include <memory>
#include <utility>

#include "api/sse.h"
#include "base/log_tail.h"
#include "gateway/handlers.h"
#include "gateway/model_states.h"
#include "gateway/signal.h"
#include "gateway/task.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace asio = boost::asio;
using namespace std::chrono_literals;

namespace {

constexpr Duration kEventsLook = 200ms;

/// An event of llama-swap's: a kind, and JSON as a string.
std::string swap_event(std::string_view type, const std::string& data) {
  spec::JsonWriter json;
  json.begin_object().key("type").string(type).key("data").string(data).end_object();
  return api::sse_event(json.text());
}

/// All models as llama-swap lists them in its events.
std::string models_of(const Context& context) {
  std::map<ModelId, std::string_view> states;
  for (const core::ModelStatus& status : context.serving->models()) {
    states[status.id] = process_state_name(status.residency);
  }
  for (const core::EngineStatus& engine : context.serving->engines()) {
    states[engine.model] = process_state_name(engine.state);
  }
  spec::JsonWriter json;
  json.begin_array();
  for (const std::shared_ptr<CatalogModel>& model : context.catalog.models()) {
    json.begin_object().key("id").string(model->config.id);
    json.key("name").string(model->config.name);
    json.key("description").string(model->config.description);
    json.key("state").string(states[model->id]);
    json.key("unlisted").boolean(model->config.unlisted).end_object();
  }
  return std::move(json.end_array()).take();
}

/// What was logged after `last`, a line an event; `last` becomes the newest.
std::string logged_since(std::uint64_t& last) {
  std::string events;
  for (const log::Line& line : log::tail(last)) {
    last = line.number;
    spec::JsonWriter json;
    json.begin_object().key("source").string(line.model.empty() ? "proxy" : "upstream");
    json.key("data").string(line.text + "\n").end_object();
    events += swap_event("logData", json.text());
  }
  return events;
}

/// llama-swap's stream of events: states of models when they change, and the log. Until the client
/// hangs up or the server ends.
Task<void> follow_events(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const auto hung_up = std::make_shared<Signal>(context->loop);
  http.on_gone([hung_up] { hung_up->notify(); });
  const Result<void> begun = co_await http.begin_stream(kEventStream);
  if (!begun) {
    co_return;
  }
  std::string told;
  std::uint64_t last = 0;
  Instant spoken = context->now();
  while (!http.gone() && !context->draining && context->serving != nullptr) {
    std::string part = logged_since(last);
    std::string models = models_of(*context);
    if (models != told) {
      part = swap_event("modelStatus", models) + part;
      told = std::move(models);
    }
    const bool silent = context->now() - spoken >= context->comment_interval;
    if (part.empty() && silent) {
      part = api::sse_comment("no news");
    }
    if (!part.empty()) {
      const Result<void> sent = co_await http.send_part(std::move(part));
      if (!sent) {
        co_return;
      }
      spoken = context->now();
    }
    co_await hung_up->wait(kEventsLook);
  }
  (void)co_await http.end_stream();  // A client that has gone does not need it.
}

}  // namespace

std::vector<Endpoint> event_endpoints() {
  return {{{"GET", "/api/events"}, Access::kAdmin, follow_events}};
}

}  // namespace heddle::gateway
