#include "gateway/embedding_handlers.h"

#include <optional>
#include <utility>

#include "api/embeddings.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_reading.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

/// How many of the inputs can run at once, or why none can: as many as the model's queue takes now,
/// halved until it does. The others follow as these end.
api::Parsed<std::size_t> places_for(const Context& context,
                                    const CatalogModel& model,
                                    const Asker& asker,
                                    std::size_t inputs) {
  std::optional<api::ApiError> full = turn_away(context, model, asker, inputs);
  while (full && inputs > 1) {
    inputs /= 2;
    full = turn_away(context, model, asker, inputs);
  }
  if (full) {
    return std::move(*full);
  }
  return inputs;
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
Task<void> answer(HttpExchange& http, LiveRequests& live, const EmbeddingWriter& write) {
  std::vector<std::vector<float>> embeddings(live.job().choices.size());
  while (!live.complete()) {
    const bool here = co_await wait_for_news(http, live);
    if (!here) {
      co_return;
    }
    for (LiveRequests::Embedding& news : live.take_embeddings()) {
      embeddings[news.prompt] = std::move(news.vector);
    }
    if (!live.complete() && live.inbox().error()) {
      co_await fail(http, live);
      co_return;
    }
  }
  HttpResponse response{.body = write(embeddings, live.usage()),
                        .headers = warning_headers(live.job().params.warnings)};
  const Result<void> sent = co_await http.respond(std::move(response));
  if (sent) {
    live.end(200);
  }
}

text::SpecialTokens special_of(const api::EmbeddingRequest& request) {
  return request.add_special_tokens ? text::SpecialTokens::kAdd : text::SpecialTokens::kNone;
}

/// The inputs by their names in the request.
std::vector<WholeText> texts_of(const api::EmbeddingRequest& request) {
  std::vector<WholeText> texts;
  for (const api::Prompt& input : request.inputs) {
    WholeText& text =
        texts.emplace_back(WholeText{.param = "input[" + std::to_string(texts.size()) + "]"});
    if (const auto* words = std::get_if<std::string>(&input)) {
      text.first = *words;
    } else {
      text.tokens = &std::get<std::vector<TokenId>>(input);
    }
  }
  return texts;
}

/// Reads the inputs of a request that has them cut where they are too long.
Task<api::Parsed<std::vector<std::vector<TokenId>>>> read_cut(
    Context& context,
    HttpExchange& http,
    const OpenedModel& opened,
    const api::EmbeddingRequest& request) {
  auto bounds = bounds_of_whole(*opened.text, request.truncate);
  if (auto* wrong = std::get_if<api::ApiError>(&bounds)) {
    co_return std::move(*wrong);
  }
  std::get<0>(bounds).special = special_of(request);
  std::vector<WholeText> texts = texts_of(request);
  auto read = co_await read_whole(context, http, opened, std::move(texts), std::get<0>(bounds));
  if (auto* wrong = std::get_if<api::ApiError>(&read)) {
    co_return std::move(*wrong);
  }
  std::vector<std::vector<TokenId>> prompts;
  for (text::Tokenizer::Encoded& encoded : std::get<0>(read)) {
    prompts.push_back(std::move(encoded.tokens));
  }
  co_return prompts;
}

Task<api::Parsed<std::vector<std::vector<TokenId>>>> read_inputs(
    Context& context,
    HttpExchange& http,
    const OpenedModel& opened,
    const api::EmbeddingRequest& request) {
  if (request.truncate) {
    co_return co_await read_cut(context, http, opened, request);
  }
  PromptsReading reading(request.inputs,
                         *opened.text->text->tokenizer(),
                         special_of(request),
                         prompt_bounds(*opened.text, "input"));
  std::optional<api::ApiError> wrong = reading.error();
  if (!wrong) {
    std::function<bool()> step = [&reading] { return reading.step(); };
    wrong = co_await work_on_text(context, http, http.request().body.size(), std::move(step));
  }
  if (!wrong) {
    wrong = reading.error();
  }
  if (wrong) {
    co_return *wrong;
  }
  co_return reading.take_tokens();
}

/// Everything from the request to its job.
Task<api::Parsed<GenerationJob>> prepare(Context& context,
                                         HttpExchange& http,
                                         const api::EmbeddingRequest& request) {
  OpenedModel opened = co_await open_model(context, request.model, Purpose::kEmbeds);
  if (!opened.error) {
    opened.error = turn_away(context, *opened.model, asker_of(http.request()), 1);
  }
  if (!opened.error && request.dimensions.value_or(0) > opened.text->hidden) {
    opened.error = api::invalid_request(
        "dimensions",
        "dimensions: is " + std::to_string(*request.dimensions) + "; the model's vectors have " +
            std::to_string(opened.text->hidden) + ", want at most so many");
  }
  if (opened.error) {
    co_return *opened.error;
  }
  auto read = co_await read_inputs(context, http, opened, request);
  if (auto* wrong = std::get_if<api::ApiError>(&read)) {
    co_return std::move(*wrong);
  }
  GenerationJob job = new_job(
      context, opened, http.request(), api::AnswerKind::kCompletion, request.model, "embd-");
  job.params.priority = request.priority;
  job.params.keep_alive = request.keep_alive;
  job.params.warnings = request.warnings;
  job.params.pooling = pooling_of(opened);
  job.prompts = std::get<0>(std::move(read));
  std::optional<api::ApiError> wrong = resolve_pooled(context, opened, "input", job);
  if (wrong) {
    co_return *wrong;
  }
  co_return job;
}

Task<void> embed(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_embedding_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::EmbeddingRequest request = std::get<0>(std::move(parsed));
  EmbeddingWriter write = [model = request.model, base64 = request.base64](
                              const std::vector<std::vector<float>>& embeddings,
                              const api::Usage& usage) {
    return api::embeddings_json(model, embeddings, usage.prompt_tokens, base64);
  };
  co_await embed_and_answer(std::move(context), http, std::move(request), std::move(write));
}

}  // namespace

std::optional<api::ApiError> resolve_pooled(Context& context,
                                            const OpenedModel& opened,
                                            const std::string& param,
                                            GenerationJob& job) {
  const auto places = places_for(context, *opened.model, job.asker, job.prompts.size());
  if (const auto* full = std::get_if<api::ApiError>(&places)) {
    return *full;
  }
  job.at_once = std::get<std::size_t>(places);
  return resolve(context, opened, param, 1, job);
}

Task<api::Parsed<std::vector<text::Tokenizer::Encoded>>> read_whole(
    Context& context,
    HttpExchange& http,
    const OpenedModel& opened,
    std::vector<WholeText> texts,
    WholeTextsReading::Bounds bounds) {
  WholeTextsReading reading(std::move(texts), *opened.text->text->tokenizer(), bounds);
  std::function<bool()> step = [&reading] { return reading.step(); };
  std::optional<api::ApiError> wrong =
      co_await work_on_text(context, http, http.request().body.size(), std::move(step));
  if (!wrong) {
    wrong = reading.error();
  }
  if (wrong) {
    co_return *wrong;
  }
  co_return reading.take();
}

Task<void> pool_and_answer(std::shared_ptr<Context> context,
                           HttpExchange& http,
                           GenerationJob job,
                           EmbeddingWriter write) {
  job.span = http.span();
  Result<std::shared_ptr<LiveRequests>> live =
      LiveRequests::make(std::move(context), std::move(job));
  HEDDLE_CHECK(live.has_value());  // There are no stop strings.
  watch_and_start(http, **live);
  co_await answer(http, **live, write);
}

Task<void> embed_and_answer(std::shared_ptr<Context> context,
                            HttpExchange& http,
                            api::EmbeddingRequest request,
                            EmbeddingWriter write) {
  std::function<Task<api::Parsed<GenerationJob>>()> read = [&] {
    return prepare(*context, http, request);
  };
  auto job = co_await prepare_current(*context, request.model, std::move(read));
  if (auto* wrong = std::get_if<api::ApiError>(&job)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const bool normalised = std::get<0>(job).text->normalised;
  EmbeddingWriter finished = [write = std::move(write), normalised, most = request.dimensions](
                                 std::vector<std::vector<float>> embeddings,
                                 const api::Usage& usage) {
    for (std::vector<float>& embedding : embeddings) {
      api::cut(embedding, most);
      if (normalised) {
        api::normalise(embedding);
      }
    }
    return write(embeddings, usage);
  };
  co_await pool_and_answer(
      std::move(context), http, std::get<0>(std::move(job)), std::move(finished));
}

std::vector<Endpoint> embedding_endpoints() {
  return {{{"POST", "/v1/embeddings"}, Access::kInference, ours_or_theirs<embed>}};
}

}  // namespace heddle::gateway
