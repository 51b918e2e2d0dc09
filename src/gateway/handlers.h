#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/router.h"
#include "gateway/task.h"

namespace heddle::gateway {

/// Answers one request. `http` outlives the task; `id` is what stood in the route's "{id}".
using Handler = Task<void> (*)(std::shared_ptr<Context> context,
                               HttpExchange& http,
                               std::string id);

/// Which keys open an endpoint. Those of the role admin open all.
enum class Access : std::uint8_t {
  kOpen,       ///< None is needed: what load balancers ask.
  kAny,        ///< Those of every role.
  kInference,  ///< Those of this role.
  kMetrics,
  kAdmin,
};

/// What bodies an endpoint takes.
enum class Body : std::uint8_t {
  kJson,
  kAny,  ///< Whatever an engine takes.
};

/// A route and who answers it.
struct Endpoint {
  Route route;
  Access access;
  Handler handler;
  Body body = Body::kJson;
};

/// Who answers what.
struct Routing {
  std::vector<Endpoint> endpoints{};
  std::vector<Route> routes{};  ///< Of the endpoints.
};

/// Chat, completions, tokens: what wakes models.
[[nodiscard]] std::vector<Endpoint> inference_endpoints();
/// Anthropic's messages.
[[nodiscard]] std::vector<Endpoint> message_endpoints();
/// What Ollama's clients ask models.
[[nodiscard]] std::vector<Endpoint> ollama_endpoints();
/// What they ask of models: which there are, loading them, and what is not offered.
[[nodiscard]] std::vector<Endpoint> ollama_model_endpoints();
/// Responses, and those that are kept.
[[nodiscard]] std::vector<Endpoint> response_endpoints();
/// Embeddings.
[[nodiscard]] std::vector<Endpoint> embedding_endpoints();
/// Scores of pairs of texts, and documents in the order of theirs.
[[nodiscard]] std::vector<Endpoint> rerank_endpoints();
/// Files of requests, and of answers to them.
[[nodiscard]] std::vector<Endpoint> file_endpoints();
/// Batches of requests that such a file has.
[[nodiscard]] std::vector<Endpoint> batch_endpoints();
/// What only engines of others answer, and all of theirs under /upstream/.
[[nodiscard]] std::vector<Endpoint> proxy_endpoints();
/// Listing, loading and unloading.
[[nodiscard]] std::vector<Endpoint> model_endpoints();
/// llama-swap's profiles: names that stand for others while one is active.
[[nodiscard]] std::vector<Endpoint> profile_endpoints();
/// LoRA adapters that come and go while the server runs.
[[nodiscard]] std::vector<Endpoint> adapter_endpoints();
/// The hosts, and which of them are to go.
[[nodiscard]] std::vector<Endpoint> host_endpoints();
/// What keys have used of models.
[[nodiscard]] std::vector<Endpoint> usage_endpoints();
/// What was logged, and what is being logged.
[[nodiscard]] std::vector<Endpoint> log_endpoints();
/// llama-swap's stream of events.
[[nodiscard]] std::vector<Endpoint> event_endpoints();
/// The page for browsers, under /ui/.
[[nodiscard]] std::vector<Endpoint> web_endpoints();
/// Health, version, metrics, devices, request traces, and the text at "/".
[[nodiscard]] std::vector<Endpoint> status_endpoints();

}  // namespace heddle::gateway
