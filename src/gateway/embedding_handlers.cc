#include <optional>
#include <utility>

#include "api/embeddings.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

/// The inputs as tokens. For a thread of the pool.
Result<void> tokenise(const api::EmbeddingRequest& request,
                      const text::Tokenizer& tokenizer,
                      GenerationJob& job) {
  const auto special =
      request.add_special_tokens ? text::SpecialTokens::kAdd : text::SpecialTokens::kNone;
  for (const api::Prompt& input : request.inputs) {
    const auto* text = std::get_if<std::string>(&input);
    Result<std::vector<TokenId>> tokens =
        text != nullptr ? tokenizer.encode(*text, special)
                        : Result<std::vector<TokenId>>(std::get<std::vector<TokenId>>(input));
    if (!tokens) {
      return tokens.error();
    }
    job.prompts.push_back(std::move(tokens).value());
  }
  return {};
}

spec::Pooling pooling_of(const OpenedModel& opened) {
  switch (opened.model->config.pooling) {
    case config::Pooling::kAuto:
      return opened.text->pooling;
    case config::Pooling::kLast:
      return spec::Pooling::kLast;
    case config::Pooling::kMean:
      return spec::Pooling::kMean;
  }
  return spec::Pooling::kLast;
}

/// Waits for all vectors and answers.
Task<void> answer(HttpExchange& http, LiveRequests& live, const api::EmbeddingRequest& request) {
  std::vector<std::vector<float>> embeddings(live.job().choices.size());
  while (!live.complete()) {
    const bool here = co_await wait_for_news(http, live);
    if (!here) {
      co_return;
    }
    for (LiveRequests::Embedding& news : live.take_embeddings()) {
      api::normalise(news.vector, request.dimensions);
      embeddings[news.prompt] = std::move(news.vector);
    }
    if (!live.complete() && live.inbox().error()) {
      co_await fail(http, live);
      co_return;
    }
  }
  HttpResponse response{
      .body = api::embeddings_json(
          live.job().head.model, embeddings, live.usage().prompt_tokens, request.base64)};
  const Result<void> sent = co_await http.respond(std::move(response));
  if (sent) {
    live.end(200);
  }
}

Task<void> embed(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = api::parse_embedding_request(http.request().body);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const api::EmbeddingRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model);
  if (!opened.error) {
    opened.error = turn_away(*context, *opened.model, request.inputs.size());
  }
  if (!opened.error && request.dimensions.value_or(0) > opened.text->hidden) {
    opened.error = api::invalid_request(
        "dimensions",
        "dimensions: is " + std::to_string(*request.dimensions) + "; the model's vectors have " +
            std::to_string(opened.text->hidden) + ", want at most so many");
  }
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  GenerationJob job = new_job(
      *context, opened, http.request(), api::AnswerKind::kCompletion, request.model, "embd-");
  job.params.priority = request.priority;
  job.params.keep_alive = request.keep_alive;
  job.params.pooling = pooling_of(opened);
  Result<void> read;
  std::function<void()> work = [&request, &opened, &job, &read] {
    read = tokenise(request, *opened.text->text->tokenizer(), job);
  };
  co_await context->pool.run(std::move(work));
  std::optional<api::ApiError> wrong;
  if (!read) {
    wrong = api::invalid_request("input", read.error().message);
  } else {
    wrong = resolve(*context, opened, "input", 1, job);
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  Result<std::shared_ptr<LiveRequests>> live = LiveRequests::make(context, std::move(job));
  HEDDLE_CHECK(live.has_value());  // There are no stop strings.
  watch_and_start(http, **live);
  co_await answer(http, **live, request);
}

}  // namespace

std::vector<Endpoint> embedding_endpoints() {
  return {{{"POST", "/v1/embeddings"}, Access::kKey, ours_or_theirs<embed>}};
}

}  // namespace heddle::gateway
