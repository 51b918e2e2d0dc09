#include <memory>
#include <optional>
#include <utility>

#include "api/answer_writer.h"
#include "api/requests.h"
#include "gateway/generation.h"
#include "gateway/job_setup.h"
#include "gateway/proxy_handlers.h"
#include "gateway/task.h"

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
  return api::completion_writer(job.head, std::move(openings), job.params.include_usage);
}

/// Starts a job that is ready, and answers.
Task<void> run(std::shared_ptr<Context> context, HttpExchange& http, GenerationJob job) {
  std::unique_ptr<api::AnswerWriter> writer = writer_of(job);
  co_await run_job(std::move(context), http, std::move(job), std::move(writer));
}

Task<void> chat(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = api::parse_chat_request(http.request().body);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::ChatRequest request = std::get<0>(std::move(parsed));
  auto job = co_await prepare_chat(context, http.request(), std::move(request), "chatcmpl-");
  if (auto* wrong = std::get_if<api::ApiError>(&job)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await run(std::move(context), http, std::get<0>(std::move(job)));
}

/// The prompts of a completion as tokens and, where they are to be echoed, as text. For a thread of
/// the pool.
Result<void> read_prompts(const api::CompletionRequest& request,
                          const text::Tokenizer& tokenizer,
                          GenerationJob& job) {
  const auto special =
      request.add_special_tokens ? text::SpecialTokens::kAdd : text::SpecialTokens::kNone;
  for (const api::Prompt& prompt : request.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    Result<std::vector<TokenId>> tokens =
        text != nullptr ? tokenizer.encode(*text, special)
                        : Result<std::vector<TokenId>>(std::get<std::vector<TokenId>>(prompt));
    if (!tokens) {
      return tokens.error();
    }
    if (request.echo) {
      const Result<std::string> shown = text != nullptr
                                            ? Result<std::string>(*text)
                                            : tokenizer.decode(*tokens, text::ShowSpecial::kNo);
      if (!shown) {
        return shown.error();
      }
      job.echo.push_back(*shown);
    }
    job.prompts.push_back(std::move(tokens).value());
  }
  return {};
}

Task<void> complete(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = api::parse_completion_request(http.request().body);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::CompletionRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model);
  if (!opened.error) {
    opened.error = turn_away(*context, *opened.model, request.prompts.size());
  }
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  GenerationJob job = new_job(
      *context, opened, http.request(), api::AnswerKind::kCompletion, request.model, "cmpl-");
  job.params = std::move(request.params);
  Result<void> read;
  std::function<void()> tokenise = [&request, &opened, &job, &read] {
    read = read_prompts(request, *opened.text->text->tokenizer(), job);
  };
  co_await context->pool.run_text(http.request().body.size(), std::move(tokenise));
  if (!read) {
    co_await respond_error(http, api::invalid_request("prompt", read.error().message));
    co_return;
  }
  std::optional<api::ApiError> wrong =
      co_await check_grammar(*context, opened, job.params.grammar, "response_format");
  if (!wrong) {
    wrong = resolve(*context, opened, "prompt", kCompletionTokens, job);
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await run(std::move(context), http, std::move(job));
}

Task<void> tokenize(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = api::parse_tokenize_request(http.request().body);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const api::TokenizeRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model);
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  const text::Tokenizer& tokenizer = *opened.text->text->tokenizer();
  std::optional<Result<std::vector<TokenId>>> tokens;
  std::function<void()> tokenise = [&request, &opened, &tokenizer, &tokens] {
    const auto special =
        request.add_special_tokens ? text::SpecialTokens::kAdd : text::SpecialTokens::kNone;
    const text::Chat conversation{.messages = request.messages,
                                  .variables = request.template_variables,
                                  .add_generation_prompt = request.add_generation_prompt};
    std::string end;
    tokens = request.prompt ? tokenizer.encode(*request.prompt, special)
                            : chat_tokens(*opened.text->text, conversation, special, end);
  };
  co_await context->pool.run_text(http.request().body.size(), std::move(tokenise));
  if (!*tokens) {
    co_await respond_error(http, conversation_error(tokens->error()));
    co_return;
  }
  std::vector<std::string> strings;
  if (request.return_token_strs) {
    for (const TokenId token : tokens->value()) {
      strings.emplace_back(tokenizer.token_bytes(token));
    }
  }
  co_await respond_json(http, api::tokenize_json(tokens->value(), opened.text->context, strings));
}

Task<void> detokenize(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = api::parse_detokenize_request(http.request().body);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  const api::DetokenizeRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model);
  if (!opened.error && !request.tokens.empty()) {
    opened.error = check_tokens_known(request.tokens, opened.text->vocab, "tokens");
  }
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  std::optional<Result<std::string>> text;
  std::function<void()> decode = [&request, &opened, &text] {
    text = opened.text->text->tokenizer()->decode(request.tokens, text::ShowSpecial::kYes);
  };
  co_await context->pool.run(std::move(decode));
  if (!*text) {
    co_await respond_error(http, api::invalid_request("tokens", text->error().message));
    co_return;
  }
  co_await respond_json(http, api::detokenize_json(text->value()));
}

}  // namespace

std::vector<Endpoint> inference_endpoints() {
  return {{{"POST", "/v1/chat/completions"}, Access::kKey, ours_or_theirs<chat>},
          {{"POST", "/v1/completions"}, Access::kKey, ours_or_theirs<complete>},
          {{"POST", "/tokenize"}, Access::kKey, ours_or_theirs<tokenize>},
          {{"POST", "/detokenize"}, Access::kKey, ours_or_theirs<detokenize>}};
}

}  // namespace heddle::gateway
