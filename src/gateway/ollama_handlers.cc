#include <functional>
#include <memory>
#include <utility>

#include "api/ollama/ollama_listing.h"
#include "api/ollama/ollama_request.h"
#include "api/ollama/ollama_writer.h"
#include "gateway/embedding_handlers.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/model_verbs.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

namespace {

using api::OllamaForm;

std::int64_t wall_clock_ns() {
  return wall_clock_ms() * 1'000'000;
}

api::ApiError unload_wants_admin() {
  return {.status = 403,
          .message =
              "unloading a model needs a key of the role admin; to have it unloaded when it "
              "is idle, send keep_alive with a prompt",
          .type = "permission_error",
          .code = "insufficient_permissions"};
}

/// A request that asks nothing: it loads its model or, with a keep_alive of 0, unloads it.
Task<void> load_or_unload(std::shared_ptr<Context> context,
                          HttpExchange& http,
                          api::ChatRequest request,
                          OllamaForm form) {
  const std::shared_ptr<CatalogModel> model = context->catalog.find(request.model);
  if (!model) {
    co_await respond_error(http,
                           api::model_not_found(request.model, context->catalog.listed_names()));
    co_return;
  }
  const bool unload = request.params.keep_alive == Duration{};
  if (unload && http.request().principal.role != config::Role::kAdmin) {
    co_await respond_error(http, unload_wants_admin());
    co_return;
  }
  const Verb verb = unload ? Verb::kUnload : Verb::kLoad;
  const Result<void> done = co_await carry_out(*context, verb, model->id);
  if (!done) {
    co_await respond_error(http, api::from_error(done.error()));
    co_return;
  }
  if (!unload && request.params.keep_alive) {
    model->keep_alive = request.params.keep_alive;
  }
  std::string told =
      api::ollama_loaded_json(request.model, form, wall_clock_ns(), unload ? "unload" : "load");
  co_await respond_json(http, std::move(told));
}

/// A prompt that no template is put around.
api::CompletionRequest raw_request(api::OllamaRequest request) {
  api::CompletionRequest completion{.model = std::move(request.chat.model)};
  completion.prompts.emplace_back(std::move(request.prompt));
  completion.params = std::move(request.chat.params);
  return completion;
}

Task<void> answer_ollama(std::shared_ptr<Context> context,
                         HttpExchange& http,
                         api::Parsed<api::OllamaRequest> (*parse)(std::string_view),
                         OllamaForm form) {
  auto parsed = co_await parse_body(*context, http, parse);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::OllamaRequest request = std::get<0>(std::move(parsed));
  if (request.empty) {
    co_await load_or_unload(std::move(context), http, std::move(request.chat), form);
    co_return;
  }
  api::Parsed<GenerationJob> prepared;
  if (request.raw) {
    api::CompletionRequest completion = raw_request(std::move(request));
    prepared = co_await prepare_completion(context, http, std::move(completion), "ollama-", 0);
  } else {
    prepared = co_await prepare_chat(context, http, std::move(request.chat), "ollama-");
  }
  if (auto* wrong = std::get_if<api::ApiError>(&prepared)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  GenerationJob job = std::get<0>(std::move(prepared));
  std::unique_ptr<api::AnswerWriter> writer = api::ollama_writer(job.head, form, wall_clock_ns);
  co_await run_job(std::move(context), http, std::move(job), std::move(writer));
}

Task<void> ollama_chat(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  return answer_ollama(std::move(context), http, &api::parse_ollama_chat, OllamaForm::kChat);
}

Task<void> ollama_generate(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  return answer_ollama(
      std::move(context), http, &api::parse_ollama_generate, OllamaForm::kGenerate);
}

Task<void> ollama_embed(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_ollama_embed);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::EmbeddingRequest request = std::get<0>(std::move(parsed));
  EmbeddingWriter write = [model = request.model](const std::vector<std::vector<float>>& embeddings,
                                                  const api::Usage& usage) {
    return api::ollama_embed_json(model, embeddings, usage);
  };
  co_await embed_and_answer(std::move(context), http, std::move(request), std::move(write));
}

/// The older form, of one text.
Task<void> ollama_embed_one(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_ollama_embeddings);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  EmbeddingWriter write = [](const std::vector<std::vector<float>>& embeddings, const api::Usage&) {
    return api::ollama_embeddings_json(embeddings.front());
  };
  co_await embed_and_answer(
      std::move(context), http, std::get<0>(std::move(parsed)), std::move(write));
}

}  // namespace

std::vector<Endpoint> ollama_endpoints() {
  return {{{"POST", "/api/chat"}, Access::kInference, ours_or_theirs<ollama_chat>},
          {{"POST", "/api/generate"}, Access::kInference, ours_or_theirs<ollama_generate>},
          {{"POST", "/api/embed"}, Access::kInference, ours_or_theirs<ollama_embed>},
          {{"POST", "/api/embeddings"}, Access::kInference, ours_or_theirs<ollama_embed_one>}};
}

}  // namespace heddle::gateway
