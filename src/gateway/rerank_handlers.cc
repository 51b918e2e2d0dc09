#include <optional>
#include <utility>

#include "api/rerank.h"
#include "gateway/embedding_handlers.h"
#include "gateway/handlers.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_work.h"
#include "gateway/whole_texts.h"

namespace heddle::gateway {

namespace {

std::vector<WholeText> texts_of(const api::PairsRequest& request) {
  std::vector<WholeText> texts;
  for (const api::ScoredPair& pair : request.pairs) {
    texts.push_back(
        {.first = request.firsts[pair.first], .second = pair.second, .param = pair.param});
  }
  return texts;
}

/// Everything from the request to its job.
Task<api::Parsed<GenerationJob>> prepare(Context& context,
                                         HttpExchange& http,
                                         const api::PairsRequest& request,
                                         std::string_view id) {
  OpenedModel opened = co_await open_model(context, request.model, Purpose::kScores);
  if (!opened.error) {
    opened.error = turn_away(context, *opened.model, asker_of(http.request()), 1);
  }
  if (opened.error) {
    co_return *opened.error;
  }
  const auto bounds = bounds_of_whole(*opened.text, request.truncate);
  if (const auto* wrong = std::get_if<api::ApiError>(&bounds)) {
    co_return *wrong;
  }
  std::vector<WholeText> texts = texts_of(request);
  auto read = co_await read_whole(context, http, opened, std::move(texts), std::get<0>(bounds));
  if (auto* wrong = std::get_if<api::ApiError>(&read)) {
    co_return std::move(*wrong);
  }
  GenerationJob job =
      new_job(context, opened, http.request(), api::AnswerKind::kCompletion, request.model, id);
  job.params.priority = request.priority;
  job.params.keep_alive = request.keep_alive;
  job.params.warnings = request.warnings;
  job.params.pooling = opened.text->pooling;
  std::vector<text::Tokenizer::Encoded> encoded = std::get<0>(std::move(read));
  for (text::Tokenizer::Encoded& pair : encoded) {
    job.prompts.push_back(std::move(pair.tokens));
  }
  std::optional<api::ApiError> wrong =
      resolve_pooled(context, opened, request.pairs.front().param, job);
  if (wrong) {
    co_return *wrong;
  }
  for (std::size_t i = 0; i < encoded.size(); ++i) {
    job.choices[i].front().second_text = encoded[i].second_text;
  }
  co_return job;
}

/// Reads a body that asks for scores of pairs.
using PairsParser = api::Parsed<api::PairsRequest>(std::string_view body);
/// Makes the answer of the model's numbers, one for each pair.
using ScoreWriter = std::function<std::string(const api::AnswerHead& head,
                                              const api::PairsRequest& request,
                                              const std::vector<float>& logits,
                                              std::int64_t tokens)>;

/// Has the pairs of a body scored, and answers what `write` makes of that.
Task<void> score_and_answer(std::shared_ptr<Context> context,
                            HttpExchange& http,
                            PairsParser* parse,
                            std::string_view id,
                            ScoreWriter write) {
  auto parsed = co_await parse_body(*context, http, parse);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::PairsRequest request = std::get<0>(std::move(parsed));
  std::function<Task<api::Parsed<GenerationJob>>()> read = [&] {
    return prepare(*context, http, request, id);
  };
  auto job = co_await prepare_current(*context, request.model, std::move(read));
  if (auto* wrong = std::get_if<api::ApiError>(&job)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  EmbeddingWriter finished =
      [write = std::move(write), head = std::get<0>(job).head, request = std::move(request)](
          const std::vector<std::vector<float>>& scores, const api::Usage& usage) {
        std::vector<float> logits;
        for (const std::vector<float>& score : scores) {
          logits.push_back(score.front());
        }
        return write(head, request, logits, usage.prompt_tokens);
      };
  co_await pool_and_answer(
      std::move(context), http, std::get<0>(std::move(job)), std::move(finished));
}

Task<void> rerank(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  ScoreWriter write = [](const api::AnswerHead& head,
                         const api::PairsRequest& request,
                         const std::vector<float>& logits,
                         std::int64_t tokens) {
    return api::rerank_json(head.id, request, logits, tokens);
  };
  return score_and_answer(
      std::move(context), http, &api::parse_rerank_request, "rerank-", std::move(write));
}

Task<void> score(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  ScoreWriter write = [](const api::AnswerHead& head,
                         const api::PairsRequest& request,
                         const std::vector<float>& logits,
                         std::int64_t tokens) {
    return api::scores_json(head.id, head.created, request, logits, tokens);
  };
  return score_and_answer(
      std::move(context), http, &api::parse_score_request, "score-", std::move(write));
}

}  // namespace

std::vector<Endpoint> rerank_endpoints() {
  std::vector<Endpoint> all;
  for (const char* path : {"/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"}) {
    all.push_back({{"POST", path}, Access::kInference, ours_or_theirs<rerank>});
  }
  for (const char* path : {"/v1/score", "/score"}) {
    all.push_back({{"POST", path}, Access::kInference, ours_or_theirs<score>});
  }
  return all;
}

}  // namespace heddle::gateway
