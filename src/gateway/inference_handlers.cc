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
constexpr std::int64_t kScoresMax = 1 << 17;    ///< Log probabilities of the prompts of a request.

/// How a job of these endpoints is answered.
std::unique_ptr<api::AnswerWriter> writer_of(const GenerationJob& job) {
  std::vector<std::string> openings;
  for (std::size_t prompt = 0; prompt < job.choices.size(); ++prompt) {
    openings.insert(openings.end(),
                    job.choices[prompt].size(),
                    job.echo.empty() ? std::string() : job.echo[prompt]);
  }
  return api::completion_writer(job.head, std::move(openings), job.params.include_usage);
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
  co_await run(std::move(context), http, std::get<0>(std::move(job)));
}

text::SpecialTokens special_of(bool add) {
  return add ? text::SpecialTokens::kAdd : text::SpecialTokens::kNone;
}

/// Reads the prompts into `job`; what to tell the client, if they cannot be.
Task<std::optional<api::ApiError>> read_prompts(Context& context,
                                                HttpExchange& http,
                                                const OpenedModel& opened,
                                                const api::CompletionRequest& request,
                                                GenerationJob& job) {
  PromptsReading reading(request.prompts,
                         *opened.text->text->tokenizer(),
                         special_of(request.add_special_tokens),
                         prompt_bounds(*opened.text, "prompt"),
                         request.echo);
  if (reading.error()) {
    co_return reading.error();
  }
  std::function<bool()> step = [&reading] { return reading.step(); };
  std::optional<api::ApiError> wrong =
      co_await work_on_text(context, http, http.request().body.size(), std::move(step));
  if (!wrong) {
    wrong = reading.error();
  }
  if (wrong) {
    co_return wrong;
  }
  job.prompts = reading.take_tokens();
  job.echo = reading.take_echo();
  co_return std::nullopt;
}

/// All log probabilities of an answer are written at once, on the loop.
std::optional<api::ApiError> too_much_to_score(const GenerationJob& job) {
  if (!job.params.score_prompt) {
    return std::nullopt;
  }
  std::int64_t tokens = 0;
  for (const std::vector<TokenId>& prompt : job.prompts) {
    tokens += std::ssize(prompt) * std::int64_t{job.params.choices};
  }
  const std::int64_t told = tokens * (1 + std::int64_t{*job.params.logprobs});
  if (told <= kScoresMax) {
    return std::nullopt;
  }
  return api::invalid_request("echo",
                              "echo: with logprobs " + std::to_string(*job.params.logprobs) + ", " +
                                  std::to_string(tokens) + " tokens of prompts come to " +
                                  std::to_string(told) + " log probabilities; want at most " +
                                  std::to_string(kScoresMax) + " in one request");
}

Task<void> complete(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = co_await parse_body(*context, http, &api::parse_completion_request);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::CompletionRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model, Purpose::kGenerates);
  if (!opened.error) {
    opened.error =
        turn_away(*context, *opened.model, asker_of(http.request()), request.prompts.size());
  }
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  GenerationJob job = new_job(
      *context, opened, http.request(), api::AnswerKind::kCompletion, request.model, "cmpl-");
  job.params = std::move(request.params);
  job.params.score_prompt = request.echo && job.params.logprobs.has_value();
  job.head.warnings = job.params.warnings;
  std::optional<api::ApiError> wrong = co_await read_prompts(*context, http, opened, request, job);
  if (!wrong) {
    wrong = co_await check_grammar(
        *context, opened, http.request(), job.params.grammar, "response_format");
  }
  if (!wrong) {
    wrong = too_much_to_score(job);
  }
  if (!wrong) {
    wrong = resolve(*context, opened, "prompt", kCompletionTokens, job);
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await run(std::move(context), http, std::move(job));
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
