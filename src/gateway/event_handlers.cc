#include <map>
#include <memory>
#include <utility>

#include "api/sse.h"
#include "base/log_tail.h"
#include "gateway/handlers.h"
#include "gateway/model_states.h"
#include "gateway/news_stream.h"
#include "gateway/task.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

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

/// What is new since it was last taken: states of models when they change, and the log.
class EventReader {
 public:
  explicit EventReader(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

  std::string take() {
    std::string events = changed_models();
    for (const log::Line& line : log::tail(last_)) {
      last_ = line.number;
      spec::JsonWriter json;
      json.begin_object().key("source").string(line.model.empty() ? "proxy" : "upstream");
      json.key("data").string(line.text + "\n").end_object();
      events += swap_event("logData", json.text());
    }
    return events;
  }

 private:
  std::string changed_models() {
    if (context_->serving == nullptr) {
      return "";
    }
    std::string models = models_of(*context_);
    if (models == told_) {
      return "";
    }
    told_ = std::move(models);
    return swap_event("modelStatus", told_);
  }

  std::shared_ptr<const Context> context_;
  std::string told_{};
  std::uint64_t last_ = 0;
};

/// llama-swap's stream of events.
Task<void> follow_events(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const auto reader = std::make_shared<EventReader>(context);
  return stream_news(std::move(context), http, kEventStream, /*comments=*/true, [reader] {
    return reader->take();
  });
}

}  // namespace

std::vector<Endpoint> event_endpoints() {
  return {{{"GET", "/api/events"}, Access::kAdmin, follow_events}};
}

}  // namespace heddle::gateway
