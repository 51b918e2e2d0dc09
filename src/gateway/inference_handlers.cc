#include <memory>
#include <optional>
#include <utility>

#include "api/answer_writer.h"
#include "api/requests.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"
#include "gateway/text_reading.h"
#include "gateway/text_work.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr std::int64_t kCompletionTokens = 16;  ///< OpenAI's default for plain completions.

/// How a job of these endpoints is answered.
std::unique_ptr<api::AnswerWriter> writer_of(const GenerationJob& job) {
  std::vector<std::string> openings;
  for (std::size_t prompt = 0; prompt < job.choices.size(); ++prompt) {
    openings.insert(openings.end(),
                    job.choices[prompt].size(),
                    job.echo.empty() ? std::string() : job.echo[prompt]);
  }
  return api::completion_writer(
      job.head, std::move(openings), job.params.include_usage, job.params.ignore_eos);
}

/// Starts a job that is ready, and answers.
Task<void> run(std::shared_ptr<Context> context, HttpExchange& http, GenerationJob job) {
  std::unique_ptr<api::AnswerWriter> writer = writer_of(job);
  co_await run_job(std::move(context), http, std::move(job), std::move(writer));
}

Task<void> chat(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_chat_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::ChatRequest request = std::get<0>(std::move(parsed));
  auto job = co_await prepare_chat(context, http, std::move(request), "chatcmpl-");
  if (auto* wrong = std::get_if<api::ApiError>(&job)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  GenerationJob ready = std::get<0>(std::move(job));
  if (ready.params.stream) {
    ready.give_calls = text::GiveCalls::kAsTheyCome;  // Clients put the pieces together.
  }
  co_await run(std::move(context), http, std::move(ready));
}

Task<void> complete(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_completion_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::CompletionRequest request = std::get<0>(std::move(parsed));
  auto job =
      co_await prepare_completion(context, http, std::move(request), "cmpl-", kCompletionTokens);
  if (auto* wrong = std::get_if<api::ApiError>(&job)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await run(std::move(context), http, std::get<0>(std::move(job)));
}

/// The tokens as the answer has them; of a text that came as `prompt` or as messages.
api::Parsed<std::string> answer_of(api::Parsed<std::vector<TokenId>> tokens,
                                   const api::TokenizeRequest& request,
                                   const ModelText& model) {
  if (auto* wrong = std::get_if<api::ApiError>(&tokens)) {
    return std::move(*wrong);
  }
  const std::vector<TokenId>& ids = std::get<0>(tokens);
  std::vector<std::string> strings;
  if (request.return_token_strs) {
    for (const TokenId token : ids) {
      strings.emplace_back(model.text->tokenizer()->token_bytes(token));
    }
  }
  return api::tokenize_json(ids, model.context, strings);
}

Task<void> tokenize(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_tokenize_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const api::TokenizeRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model, Purpose::kTokens);
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  const TextBounds bounds = tokenize_bounds(*opened.text, request.prompt ? "prompt" : "messages");
  const text::SpecialTokens special = special_of(request.add_special_tokens);
  const text::Chat conversation{.messages = request.messages.json,
                                .variables = request.template_variables,
                                .add_generation_prompt = request.add_generation_prompt};
  std::optional<TextReading> text;
  ChatReading chat(*opened.text->text, conversation, special, bounds);
  if (request.prompt) {
    text.emplace(*opened.text->text->tokenizer(), *request.prompt, special, bounds);
  }
  api::Parsed<std::string> answer;
  std::function<bool()> step = [&text, &chat, &request, &opened, &answer] {
    const bool done = text ? text->step() : chat.step();
    if (done) {
      answer = answer_of(text ? text->take() : chat.take(), request, *opened.text);
    }
    return done;
  };
  std::optional<api::ApiError> wrong =
      check_bytes(request.prompt ? request.prompt->size() : request.messages.text_bytes, bounds);
  if (!wrong) {
    wrong = co_await work_on_text(*context, http, http.request().body.size(), std::move(step));
  }
  if (!wrong && std::holds_alternative<api::ApiError>(answer)) {
    wrong = std::get<api::ApiError>(std::move(answer));
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await respond_json(http, std::get<0>(std::move(answer)));
}

Task<void> detokenize(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_detokenize_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const api::DetokenizeRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model, Purpose::kTokens);
  if (!opened.error && !request.tokens.empty()) {
    opened.error = check_tokens_known(request.tokens, opened.text->vocab, "tokens");
  }
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  api::Parsed<std::string> answer;
  std::function<bool()> decode = [&request, &opened, &answer] {
    const Result<std::string> text =
        opened.text->text->tokenizer()->decode(request.tokens, text::ShowSpecial::kYes);
    answer = text ? api::Parsed<std::string>(api::detokenize_json(*text))
                  : api::Parsed<std::string>(api::from_error(text.error(), "tokens"));
    return true;
  };
  std::optional<api::ApiError> wrong =
      co_await work_on_text(*context, http, http.request().body.size(), std::move(decode));
  if (!wrong && std::holds_alternative<api::ApiError>(answer)) {
    wrong = std::get<api::ApiError>(std::move(answer));
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await respond_json(http, std::get<0>(std::move(answer)));
}

}  // namespace

std::vector<Endpoint> inference_endpoints() {
  return {{{"POST", "/v1/chat/completions"}, Access::kInference, ours_or_theirs<chat>},
          {{"POST", "/v1/completions"}, Access::kInference, ours_or_theirs<complete>},
          {{"POST", "/tokenize"}, Access::kInference, ours_or_theirs<tokenize>},
          {{"POST", "/detokenize"}, Access::kInference, ours_or_theirs<detokenize>}};
}

}  // namespace heddle::gateway
