#include <algorithm>
#include <charconv>
#include <functional>
#include <memory>
#include <utility>

#include "api/anthropic/model_list.h"
#include "api/requests.h"
#include "api/responses.h"
#include "gateway/engine_handlers.h"
#include "gateway/handlers.h"
#include "gateway/idle_models.h"
#include "gateway/model_states.h"
#include "gateway/model_verbs.h"
#include "gateway/standing.h"
#include "gateway/task.h"
#include "gateway/text_work.h"
#include "gateway/upstream.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

/// The engine of a model; nothing where it has none, or none was ever started.
std::optional<core::EngineStatus> engine_of(const Context& context, ModelId model) {
  for (core::EngineStatus& engine : context.serving->engines()) {
    if (engine.model == model) {
      return std::move(engine);
    }
  }
  return std::nullopt;
}

/// What is being fetched of a model; nothing where nothing is.
std::optional<api::FetchObject> fetch_of(const core::ModelStatus& status) {
  if (!status.fetch || !status.fetch->active) {
    return std::nullopt;
  }
  return api::FetchObject{.from = status.fetch->from,
                          .bytes = status.fetch->bytes,
                          .total_bytes = status.fetch->total_bytes,
                          .bytes_per_second = status.fetch->bytes_per_second};
}

/// As the configuration says it.
void describe_capabilities(const config::Capabilities& said, api::ModelObject& object) {
  object.in = said.in.empty() ? object.in : said.in;
  object.out = said.out.empty() ? object.out : said.out;
  object.tools = said.tools;
  object.reranker = said.reranker;
  object.context_length = said.context > 0 ? said.context : object.context_length;
}

api::ModelObject describe(const Context& context,
                          const CatalogModel& model,
                          const core::ModelStatus& status) {
  api::ModelObject object{.id = model.config.id,
                          .created = context.started_s,
                          .name = model.config.name,
                          .description = model.config.description,
                          .aliases = model.config.aliases,
                          .parent = model.config.base,
                          .state = state_name(status.residency),
                          .residency = residency_name(status.residency),
                          .slo_ttft = status.objectives.ttft,
                          .slo_tpot = status.objectives.tpot,
                          .metadata = model.config.metadata};
  if (status.residency == core::Residency::kAbsent && status.host_cached) {
    object.residency = "host_cached";
  }
  if (const auto engine = engine_of(context, status.id)) {
    object.state = state_name(engine->state);
    object.residency = core::name(engine->state);
    object.level = engine->level ? spec::name(*engine->level) : "";
  }
  if (status.device) {
    object.device = places_of(status, device_names(*context.serving));
  }
  if (status.residency == core::Residency::kLoading && status.image_bytes > 0) {
    object.progress =
        static_cast<double>(status.loaded_bytes) / static_cast<double>(status.image_bytes);
  }
  object.fetch = fetch_of(status);
  if (object.fetch) {
    object.state = "downloading";
  }
  if (status.failure) {
    object.failure = api::without_paths(status.failure->message);
  }
  object.context_length = model.context();
  describe_capabilities(model.config.capabilities, object);
  return object;
}

/// A model that a peer has; how it stands there is not known here.
api::ModelObject describe_theirs(const Context& context,
                                 const std::string& model,
                                 const std::string& peer) {
  return {.id = model,
          .created = context.started_s,
          .description = "at the peer " + peer,
          .state = "loaded",
          .residency = "peer"};
}

/// A name that stands for models: it is there where one of those is that it may mean.
api::ModelObject describe_selector(const Context& context, const config::SelectorConfig& selector) {
  api::ModelObject object{.id = selector.id,
                          .created = context.started_s,
                          .name = selector.name,
                          .description = selector.description,
                          .state = "unloaded",
                          .residency = "selector",
                          .metadata = selector.metadata,
                          .targets = selector.targets};
  const bool pinned = selector.strategy == config::SelectorStrategy::kPin;
  const std::size_t meant = pinned ? 1 : selector.targets.size();
  for (std::size_t i = 0; i < meant; ++i) {
    const Standing standing = standing_of(context, selector.targets[i]);
    if (standing == Standing::kReady || standing == Standing::kComing) {
      object.state = "loaded";
    }
  }
  return object;
}

/// The names that the active profile gives to models, beside their own.
void add_pins(const Context& context, std::vector<api::ModelObject>& objects) {
  for (const config::ProfileConfig& profile : context.names.profiles()) {
    if (profile.id != context.names.active()) {
      continue;
    }
    for (const auto& [name, target] : profile.pins) {
      const bool taken = context.catalog.find(name) || context.peers.find(name) ||
                         context.names.selector(name) != nullptr;
      if (!target.empty() && !taken) {
        objects.push_back({.id = name,
                           .created = context.started_s,
                           .description = "by the profile " + profile.id,
                           .state = "unloaded",
                           .residency = "profile",
                           .targets = {target}});
      }
    }
  }
}

/// Whether a client of Anthropic's API asks for what both APIs have.
bool asks_as_anthropic(const HttpRequest& request) {
  return !field_value(request.headers, "anthropic-version").empty();
}

/// The part of a listing that Anthropic's clients ask for.
api::ListPage page_of(const HttpRequest& request) {
  constexpr std::size_t kMost = 1000;
  api::ListPage page{.after_id = query_value(request.query, "after_id").value_or(""),
                     .before_id = query_value(request.query, "before_id").value_or("")};
  const std::string limit = query_value(request.query, "limit").value_or("");
  std::size_t number = 0;
  const auto [end, failure] = std::from_chars(limit.data(), limit.data() + limit.size(), number);
  if (failure == std::errc() && end == limit.data() + limit.size() && number > 0) {
    page.limit = std::min(number, kMost);
  }
  return page;
}

/// The last one again under each of its further names.
void add_aliases(std::vector<api::ModelObject>& objects) {
  const api::ModelObject named = objects.back();
  for (const std::string& alias : named.aliases) {
    objects.push_back(named);
    objects.back().id = alias;
    objects.back().aliases = {named.id};
  }
}

Task<void> list(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  std::map<ModelId, core::ModelStatus> statuses;
  for (core::ModelStatus& status : context->serving->models()) {
    const ModelId id = status.id;
    statuses.emplace(id, std::move(status));
  }
  std::vector<api::ModelObject> objects;
  for (const std::shared_ptr<CatalogModel>& model : context->catalog.models()) {
    if (!model->config.unlisted) {
      objects.push_back(describe(*context, *model, statuses[model->id]));
      if (context->list_aliases) {
        add_aliases(objects);
      }
    }
  }
  for (const auto& [model, peer] : context->peers.models()) {
    objects.push_back(describe_theirs(*context, model, peer));
  }
  for (const config::SelectorConfig& selector : context->names.selectors()) {
    if (!selector.unlisted) {
      objects.push_back(describe_selector(*context, selector));
    }
  }
  add_pins(*context, objects);
  const bool anthropic = asks_as_anthropic(http.request());
  std::string listing = anthropic ? api::anthropic_model_list_json(objects, page_of(http.request()))
                                  : api::model_list_json(objects);
  co_await respond_json(http, std::move(listing));
}

core::ModelStatus status_of(const Context& context, ModelId id) {
  for (core::ModelStatus& status : context.serving->models()) {
    if (status.id == id) {
      return std::move(status);
    }
  }
  return {};
}

Task<void> retrieve(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  const std::shared_ptr<CatalogModel> model = context->catalog.find(id);
  const std::shared_ptr<Peer> peer = context->peers.find(id);
  const config::SelectorConfig* const selector = context->names.selector(id);
  if (!model && !peer && selector == nullptr) {
    co_await respond_error(http, api::model_not_found(id, context->catalog.listed_names()));
    co_return;
  }
  api::ModelObject object;
  if (model) {
    object = describe(*context, *model, status_of(*context, model->id));
  } else if (peer == nullptr) {
    object = describe_selector(*context, *selector);
  } else {
    object = describe_theirs(*context, id, peer->config.name);
  }
  const bool anthropic = asks_as_anthropic(http.request());
  std::string told = anthropic ? api::anthropic_model_json(object) : api::model_json(object);
  co_await respond_json(http, std::move(told));
}

/// What a shell would run.
std::string command_line(const config::EngineConfig& engine) {
  std::string line;
  for (const std::string& word : engine.command) {
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? engine.container.image : line;
}

Task<void> running(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  // Command lines have paths, and perhaps secrets.
  const bool tells = http.request().principal.role == config::Role::kAdmin;
  spec::JsonWriter json;
  json.begin_object().key("running").begin_array();
  for (const core::ModelStatus& status : context->serving->models()) {
    const std::shared_ptr<CatalogModel> model = context->catalog.find(status.id);
    const auto engine = engine_of(*context, status.id);
    const bool here = engine ? engine->state != core::EngineState::kStopped
                             : status.residency != core::Residency::kAbsent;
    if (!model || !here) {
      continue;
    }
    const auto ttl =
        std::chrono::duration_cast<std::chrono::seconds>(time_to_live(*model).value_or(Duration{}));
    const std::optional<config::EngineConfig>& theirs = model->config.engine;
    json.begin_object().key("model").string(model->config.id);
    json.key("state").string(engine ? process_state_name(engine->state)
                                    : process_state_name(status.residency));
    json.key("cmd").string(theirs && tells ? command_line(*theirs) : "");
    json.key("proxy").string(theirs ? theirs->upstream.url() : "").key("ttl").integer(ttl.count());
    json.key("name").string(model->config.name);
    json.key("description").string(model->config.description);
    json.key("residency")
        .string(engine ? core::name(engine->state) : residency_name(status.residency));
    json.key("requests_running").integer(status.requests_running);
    json.key("requests_waiting").integer(status.requests_waiting);
    json.key("bytes").integer(status.image_bytes).key("loaded_bytes").integer(status.loaded_bytes);
    if (const auto fetch = fetch_of(status)) {
      json.key("fetch");
      api::write_fetch(json, *fetch);
    }
    json.key("device");
    if (status.device) {
      json.string(places_of(status, device_names(*context->serving)));
    } else {
      json.null();
    }
    json.end_object();
  }
  json.end_array().end_object();
  co_await respond_json(http, std::move(json).take());
}

Task<void> carry_out_and_answer(std::shared_ptr<Context> context,
                                HttpExchange& http,
                                Verb verb,
                                std::string name) {
  const std::shared_ptr<CatalogModel> model = context->catalog.find(name);
  if (!model) {
    co_await respond_error(http, api::model_not_found(name, context->catalog.listed_names()));
    co_return;
  }
  const Result<void> done = co_await carry_out(*context, verb, model->id);
  if (!done) {
    co_await respond_error(http, api::from_error(done.error()));
    co_return;
  }
  co_await respond_json(http, R"({"success":true})");
}

Task<void> change(std::shared_ptr<Context> context, HttpExchange& http, Verb verb) {
  auto parsed = co_await parse_body(*context, http, &api::parse_model_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  std::string name = std::get<0>(std::move(parsed));
  co_await carry_out_and_answer(std::move(context), http, verb, std::move(name));
}

Task<void> load(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await change(std::move(context), http, Verb::kLoad);
}

Task<void> unload(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  co_await change(std::move(context), http, Verb::kUnload);
}

Task<void> unload_one(std::shared_ptr<Context> context, HttpExchange& http, std::string id) {
  co_await carry_out_and_answer(std::move(context), http, Verb::kUnload, std::move(id));
}

// --- vLLM's calls, with the model in the query as its router has it ---

std::string model_in_query(const HttpRequest& request) {
  const std::optional<std::string> model = query_value(request.query, "model");
  return model ? *model : query_value(request.query, "id").value_or("");
}

Task<void> sleep(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  std::string name = model_in_query(http.request());
  co_await carry_out_and_answer(std::move(context), http, Verb::kUnload, std::move(name));
}

Task<void> wake_up(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  std::string name = model_in_query(http.request());
  co_await carry_out_and_answer(std::move(context), http, Verb::kLoad, std::move(name));
}

Task<void> is_sleeping(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const std::string name = model_in_query(http.request());
  const std::shared_ptr<CatalogModel> model = context->catalog.find(name);
  if (!model) {
    co_await respond_error(http, api::model_not_found(name, context->catalog.listed_names()));
    co_return;
  }
  const api::ModelObject object = describe(*context, *model, status_of(*context, model->id));
  const bool asleep = object.state == "unloaded" || object.state == "sleeping";
  std::string answer = asleep ? R"({"is_sleeping":true})" : R"({"is_sleeping":false})";
  co_await respond_json(http, std::move(answer));
}

Task<void> unload_all(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  for (const core::ModelStatus& status : context->serving->models()) {
    if (status.residency == core::Residency::kAbsent) {
      continue;
    }
    const Result<void> done = co_await carry_out(*context, Verb::kUnload, status.id);
    if (!done) {
      co_await respond_error(http, api::from_error(done.error()));
      co_return;
    }
  }
  co_await respond_json(http, R"({"success":true})");
}

}  // namespace

std::vector<Endpoint> model_endpoints() {
  return {{{"GET", "/v1/models"}, Access::kAny, list},
          {{"GET", "/v1/models/{id}"}, Access::kAny, retrieve},
          {{"GET", "/models"}, Access::kAny, list},
          {{"GET", "/running"}, Access::kAny, running},
          {{"POST", "/models/load"}, Access::kAdmin, load},
          {{"POST", "/models/unload"}, Access::kAdmin, unload},
          {{"POST", "/api/models/unload"}, Access::kAdmin, unload_all},
          {{"POST", "/api/models/unload/{id}"}, Access::kAdmin, unload_one},
          {{"POST", "/unload"}, Access::kAdmin, unload_all},
          {{"POST", "/sleep"}, Access::kAdmin, sleep},
          {{"POST", "/wake_up"}, Access::kAdmin, wake_up},
          {{"GET", "/is_sleeping"}, Access::kAny, is_sleeping}};
}

}  // namespace heddle::gateway
