#include "gateway/proxy_handlers.h"

#include <algorithm>

#include "gateway/forward_body.h"
#include "gateway/job_setup.h"
#include "gateway/standing.h"
#include "gateway/task.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr std::string_view kUpstream = "/upstream/";

/// The request's own headers as the engine gets them. A key of ours is none of its business.
HttpFields forwarded_headers(const Context& context, const HttpRequest& request) {
  HttpFields headers;
  headers.reserve(request.headers.size() + 1);
  headers = request.headers;
  headers = end_to_end(std::move(headers));
  std::erase_if(headers, [&context](const auto& field) {
    const std::string& name = field.first;
    const bool key = is_same_field(name, "authorization") || is_same_field(name, "x-api-key");
    // What a key uses is counted as it passes by, which compressed it could not be.
    const bool packed = is_same_field(name, "accept-encoding");
    return ((key || packed) && context.keys_asked) || is_same_field(name, "x-request-id");
  });
  headers.emplace_back("X-Request-Id", request.request_id);
  return headers;
}

/// Whether a segment of the path is "." or "..", with percent signs or without: an engine that
/// takes those for steps would answer what only /upstream/ may ask.
bool has_steps(const std::string& path) {
  const std::string decoded = "/" + percent_decode(path) + "/";
  return decoded.find("/./") != std::string::npos || decoded.find("/../") != std::string::npos;
}

std::string target_of(std::string path, const HttpRequest& request) {
  return request.query.empty() ? path : path + "?" + request.query;
}

/// A job for `model`, all but the body.
ForwardJob new_forward_job(const Context& context,
                           const HttpRequest& request,
                           std::shared_ptr<CatalogModel> model,
                           std::string name,
                           std::string path) {
  ForwardJob job{.model = std::move(model), .name = std::move(name), .endpoint = request.path};
  job.request = {.method = request.head_only ? "HEAD" : request.method,
                 .target = target_of(std::move(path), request),
                 .headers = forwarded_headers(context, request)};
  job.asker = asker_of(request);
  job.priority = priority_of(*job.model, 0, request.principal.least_priority);
  return job;
}

/// Notes what the answer of a request to `path` will be, by what its body says: a stream of events,
/// unless it is sound.
void expect_answer(ForwardJob& job, std::string_view path, const BodyFacts& facts) {
  const bool lines = path.starts_with("/api/");  // Ollama's streams are no events.
  job.events = facts.stream && !lines && !path.starts_with("/v1/audio/");
  job.chat = path == "/v1/chat/completions";
}

/// Likewise, with what the body says of it.
ForwardJob inference_job(const Context& context,
                         const HttpRequest& request,
                         std::shared_ptr<CatalogModel> model,
                         const BodyFacts& facts) {
  ForwardJob job = new_forward_job(context, request, std::move(model), facts.model, request.path);
  expect_answer(job, request.path, facts);
  job.max_tokens = facts.max_tokens;
  const std::int64_t asked =
      std::clamp<std::int64_t>(facts.priority.value_or(0), INT32_MIN, INT32_MAX);
  job.priority =
      priority_of(*job.model, static_cast<std::int32_t>(asked), request.principal.least_priority);
  return job;
}

api::ApiError only_for_engines(const HttpRequest& request, const std::string& model) {
  api::ApiError error =
      api::not_supported("model",
                         request.path + " is for models that engines of their own serve; \"" +
                             model + "\" is served by heddle itself, which does not have it");
  error.status = 501;
  return error;
}

api::ApiError no_websockets(const HttpRequest& request) {
  api::ApiError error = api::not_supported(
      "",
      request.path + " asks for a WebSocket, which heddle does not forward; ask the engine itself");
  error.status = 501;
  return error;
}

/// Forwards a request for `model`, which an engine serves.
Task<void> filter_and_forward(std::shared_ptr<Context> context,
                              HttpExchange& http,
                              std::shared_ptr<CatalogModel> model,
                              BodyFacts facts) {
  const config::EngineConfig engine = *model->config.engine;  // A reload may change the model's.
  ForwardJob job = inference_job(*context, http.request(), std::move(model), facts);
  std::function<void()> work = [&job, &http, &engine, &facts] {
    job.request.body =
        filtered_body(http.request(), engine.filters, engine.served_name, facts.model);
  };
  std::optional<api::ApiError> wrong = co_await work_on_body(*context, http, std::move(work));
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await admit_and_forward(std::move(context), http, std::move(job));
}

/// A job for the peer that has this model, all but the body.
PeerJob new_peer_job(const HttpRequest& request, std::shared_ptr<Peer> peer, std::string model) {
  PeerJob job{.peer = std::move(peer), .model = std::move(model)};
  job.model = name_at_peer(*job.peer, std::move(job.model));
  job.request = {.method = request.method,
                 .target = target_of(request.path, request),
                 .headers = headers_for_peer(request, job.peer->config.api_key)};
  return job;
}

/// Forwards a request for a model that a peer has.
Task<void> filter_and_ask_peer(std::shared_ptr<Context> context,
                               HttpExchange& http,
                               std::shared_ptr<Peer> peer,
                               BodyFacts facts) {
  PeerJob job = new_peer_job(http.request(), std::move(peer), facts.model);
  job.max_tokens = facts.max_tokens;
  std::function<void()> work = [&job, &http, &facts] {
    const std::string served = facts.model == job.model ? "" : job.model;
    job.request.body = filtered_body(http.request(), job.peer->config.filters, served, job.model);
  };
  std::optional<api::ApiError> wrong = co_await work_on_body(*context, http, std::move(work));
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await admit_and_ask_peer(std::move(context), http, std::move(job));
}

/// What heddle has no answer of its own to.
Task<void> theirs(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  const HttpRequest& request = http.request();
  if (has_steps(request.path)) {
    api::ApiError wrong = api::invalid_request("", "a path with \".\" or \"..\" is not forwarded");
    wrong.status = 404;
    co_await respond_error(http, std::move(wrong));
    co_return;
  }
  auto read = co_await facts_of(*context, http);
  if (auto* wrong = std::get_if<api::ApiError>(&read)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  Result<BodyFacts> facts = std::get<0>(std::move(read));
  if (!facts || facts->model.empty()) {
    api::ApiError wrong =
        facts ? api::invalid_request("model", "model: is missing; want the name of a model")
              : api::invalid_request("", facts.error().message);
    co_await respond_error(http, std::move(wrong));
    co_return;
  }
  std::shared_ptr<CatalogModel> model = context->catalog.find(facts->model);
  if (std::shared_ptr<Peer> peer = context->peers.find(facts->model); !model && peer) {
    co_await filter_and_ask_peer(std::move(context), http, std::move(peer), std::move(*facts));
    co_return;
  }
  if (!model) {
    co_await respond_error(http,
                           api::model_not_found(facts->model, context->catalog.listed_names()));
    co_return;
  }
  if (!model->config.engine) {
    co_await respond_error(http, only_for_engines(request, facts->model));
    co_return;
  }
  co_await filter_and_forward(std::move(context), http, std::move(model), std::move(*facts));
}

/// A page that is open in a browser would have the engine come again and again.
api::ApiError not_worth_a_start(const std::string& model, const std::string& path) {
  api::ApiError error =
      api::invalid_request("",
                           "the model \"" + model + "\" is not loaded, and " + path +
                               " does not load it: upstream.ignorePaths names such paths");
  error.status = 409;
  error.code = "model_not_loaded";
  return error;
}

/// The model whose name begins `path`, the longest if there are several, and the rest of the path.
/// Names have slashes, and may be percent-encoded.
struct UpstreamTarget {
  std::shared_ptr<CatalogModel> model{};
  std::string name{};
  std::string rest{};
};
UpstreamTarget upstream_target(const Context& context, std::string_view path) {
  for (std::size_t end = path.size(); end != std::string_view::npos && end > 0;
       end = path.rfind('/', end - 1)) {
    std::string name = percent_decode(path.substr(0, end));
    if (auto model = context.catalog.find(context.names.pinned(name).value_or(name))) {
      return {.model = std::move(model),
              .name = std::move(name),
              .rest = std::string(path.substr(end))};
    }
  }
  return {};
}

/// Anything that an engine has, under the name of its model.
Task<void> upstream(std::shared_ptr<Context> context, HttpExchange& http, std::string below) {
  const HttpRequest& request = http.request();
  UpstreamTarget target =
      upstream_target(*context, std::string_view(request.path).substr(kUpstream.size()));
  if (!target.model) {
    co_await respond_error(http, api::model_not_found(below, context->catalog.listed_names()));
    co_return;
  }
  if (!target.model->config.engine) {
    co_await respond_error(http, only_for_engines(request, target.name));
    co_return;
  }
  if (is_same_field(field_value(request.headers, "upgrade"), "websocket")) {
    co_await respond_error(http, no_websockets(request));
    co_return;
  }
  if (target.rest.empty() && request.method == "GET") {
    // Pages of engines have relative links.
    HttpResponse moved{.status = 308};
    moved.headers.emplace_back("Location", target_of(request.path + "/", request));
    (void)co_await http.respond(std::move(moved));  // Nobody else wants it.
    co_return;
  }
  const std::string path = target.rest.empty() ? "/" : std::move(target.rest);
  if (context->ignored_paths.match(path) &&
      standing_of(*context, target.model->config.id) != Standing::kReady) {
    co_await respond_error(http, not_worth_a_start(target.name, path));
    co_return;
  }
  ForwardJob job =
      new_forward_job(*context, request, std::move(target.model), std::move(target.name), path);
  std::function<void()> work = [&job, &request, &path] {
    job.request.body = request.body;
    // Of other paths it is not known what their streams are of.
    if (path.starts_with("/v1/")) {
      if (const Result<BodyFacts> facts = read_facts(request)) {
        expect_answer(job, path, *facts);
      }
    }
  };
  std::optional<api::ApiError> wrong = co_await work_on_body(*context, http, std::move(work));
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await admit_and_forward(std::move(context), http, std::move(job));
}

}  // namespace

Task<api::Parsed<Result<BodyFacts>>> facts_of(Context& context, HttpExchange& http) {
  std::optional<Result<BodyFacts>> facts;
  std::function<void()> work = [&facts, &http] { facts = read_facts(http.request()); };
  std::optional<api::ApiError> wrong = co_await work_on_body(context, http, std::move(work));
  if (wrong) {
    co_return std::move(*wrong);
  }
  co_return std::move(*facts);
}

std::optional<ForwardJob> forward_job(const Context& context, const HttpRequest& request) {
  if (!context.catalog.has_engines()) {
    return std::nullopt;
  }
  const Result<BodyFacts> facts = read_facts(request);
  if (!facts) {
    return std::nullopt;
  }
  std::shared_ptr<CatalogModel> model = context.catalog.find(facts->model);
  if (!model || !model->config.engine) {
    return std::nullopt;
  }
  const config::EngineConfig& engine = *model->config.engine;
  ForwardJob job = inference_job(context, request, model, *facts);
  job.request.body = filtered_body(request, engine.filters, engine.served_name, facts->model);
  return job;
}

std::optional<PeerJob> peer_job(const Context& context, const HttpRequest& request) {
  if (context.peers.empty()) {
    return std::nullopt;
  }
  Result<BodyFacts> facts = read_facts(request);
  std::shared_ptr<Peer> peer = facts ? context.peers.find(facts->model) : nullptr;
  if (!peer) {
    return std::nullopt;
  }
  PeerJob job = new_peer_job(request, std::move(peer), facts->model);
  job.max_tokens = facts->max_tokens;
  const std::string served = facts->model == job.model ? "" : job.model;
  job.request.body = filtered_body(request, job.peer->config.filters, served, job.model);
  return job;
}

Task<void> forward_or(std::shared_ptr<Context> context,
                      HttpExchange& http,
                      Handler ours,
                      std::string id) {
  auto read = co_await facts_of(*context, http);
  if (auto* wrong = std::get_if<api::ApiError>(&read)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  Result<BodyFacts> facts = std::get<0>(std::move(read));
  std::shared_ptr<CatalogModel> model;
  std::shared_ptr<Peer> peer;
  if (facts) {
    model = context->catalog.find(facts->model);
    peer = context->peers.find(facts->model);
  }
  if (!model && peer) {
    co_await filter_and_ask_peer(std::move(context), http, std::move(peer), std::move(*facts));
    co_return;
  }
  if (!model || !model->config.engine) {
    co_await ours(std::move(context), http, std::move(id));
    co_return;
  }
  co_await filter_and_forward(std::move(context), http, std::move(model), std::move(*facts));
}

Task<void> admit_and_ask_peer(std::shared_ptr<Context> context, HttpExchange& http, PeerJob job) {
  const Asker asker = asker_of(http.request());
  if (auto no = set_aside(*context, asker, job.max_tokens, job.reserved)) {
    return respond_error(http, std::move(*no));
  }
  return forward_to_peer(std::move(context), http, std::move(job));
}

Task<void> admit_and_forward(std::shared_ptr<Context> context, HttpExchange& http, ForwardJob job) {
  std::optional<api::ApiError> no = turn_away(*context, *job.model, job.asker, 1);
  if (!no) {
    no = set_aside(*context, job.asker, job.max_tokens, job.reserved);
  }
  if (no) {
    return respond_error(http, std::move(*no));
  }
  return forward(std::move(context), http, std::move(job));
}

std::vector<Endpoint> proxy_endpoints() {
  std::vector<Endpoint> all;
  for (const char* path : {"/v1/audio/{id}",
                           "/v1/images/{id}",
                           "/infill",
                           "/completion",
                           "/pooling",
                           "/classify",
                           "/apply-template"}) {
    all.push_back({{"POST", path}, Access::kInference, theirs, Body::kAny});
  }
  for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"}) {
    // An engine's own administration is among what is there.
    all.push_back({{method, "/upstream/{id}"}, Access::kAdmin, upstream, Body::kAny});
  }
  return all;
}

}  // namespace heddle::gateway
