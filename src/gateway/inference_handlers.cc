#include <optional>
#include <utility>

#include "api/requests.h"
#include "api/responses.h"
#include "gateway/generation.h"
#include "gateway/handlers.h"
#include "gateway/sampling.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

constexpr std::int64_t kCompletionTokens = 16;  ///< OpenAI's default for plain completions.

std::string draw_id(Rng& rng) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (int word = 0; word < 2; ++word) {
    std::uint64_t bits = rng.next();
    for (int i = 0; i < 16; ++i, bits >>= 4U) {
      id += kDigits[bits & 15U];
    }
  }
  return id;
}

/// Why no request for this model is taken now, if so.
std::optional<api::ApiError> turn_away(const Context& context,
                                       const CatalogModel& model,
                                       std::size_t requests) {
  if (context.draining || context.serving == nullptr) {
    return api::unavailable("the server is shutting down");
  }
  const std::int64_t limit =
      model.config.concurrency_limit > 0 ? model.config.concurrency_limit : context.limits.queue;
  if (model.in_flight + static_cast<std::int64_t>(requests) > limit) {
    return api::concurrency_limit("the model \"" + model.config.id + "\" has " +
                                  std::to_string(model.in_flight) +
                                  " requests running and waiting, and takes at most " +
                                  std::to_string(limit) + " at once; try again later");
  }
  return std::nullopt;
}

/// A model and its text part, or what to tell the client.
struct OpenedModel {
  std::shared_ptr<CatalogModel> model{};
  std::shared_ptr<const ModelText> text{};
  std::optional<api::ApiError> error{};

  [[nodiscard]] SamplingLimits limits() const {
    return {.defaults = text->defaults,
            .eos = text->text->eos(),
            .vocab = text->vocab,
            .context = text->context};
  }
};

asio::awaitable<OpenedModel> open_model(Context& context, std::string name) {
  OpenedModel opened{.model = context.catalog.find(name)};
  if (!opened.model) {
    opened.error = api::model_not_found(name, context.catalog.listed_names());
    co_return opened;
  }
  const auto text = co_await context.catalog.text(opened.model);
  if (context.serving == nullptr) {
    opened.error = api::unavailable("the server is shutting down");
  } else if (text) {
    opened.text = *text;
  } else {
    opened.error = api::from_error(text.error());
    // The client named a model that is configured: it is not the client's mistake.
    if (opened.error->status < 500) {
      opened.error->status = 500;
      opened.error->type = "server_error";
    }
  }
  co_return opened;
}

/// Sets the choices of each prompt, or says what is wrong with the request.
std::optional<api::ApiError> resolve(Context& context,
                                     const OpenedModel& opened,
                                     const std::string& param,
                                     std::int64_t max_tokens,
                                     GenerationJob& job) {
  const std::uint64_t seed = context.rng.next();
  for (const std::vector<TokenId>& prompt : job.prompts) {
    if (auto wrong = check_prompt(prompt, opened.limits(), param)) {
      return wrong;
    }
    auto resolved = resolve_sampling(
        job.params, opened.limits(), static_cast<std::int64_t>(prompt.size()), seed, max_tokens);
    if (auto* wrong = std::get_if<api::ApiError>(&resolved)) {
      return *wrong;
    }
    job.choices.push_back(std::get<0>(std::move(resolved)));
  }
  return turn_away(context, *opened.model, job.prompts.size());
}

GenerationJob new_job(Context& context,
                      const OpenedModel& opened,
                      const HttpRequest& request,
                      api::AnswerKind kind,
                      const std::string& model) {
  const bool chat = kind == api::AnswerKind::kChat;
  GenerationJob job{.model = opened.model, .text = opened.text};
  job.head = {.kind = kind,
              .id = (chat ? "chatcmpl-" : "cmpl-") + draw_id(context.rng),
              .created = wall_clock_ms() / 1000,
              .model = model,
              .fingerprint = context.fingerprint};
  job.request_id = request.request_id;
  job.endpoint = request.path;
  return job;
}

/// Whether the model can be held to the grammar of `params`; its error is the client's. Compiles
/// it, which for a model's first grammar takes its vocabulary, too.
asio::awaitable<std::optional<api::ApiError>> check_grammar(Context& context,
                                                            OpenedModel opened,
                                                            spec::Grammar grammar) {
  if (!grammar.constrains()) {
    co_return std::nullopt;
  }
  std::shared_ptr<const text::GrammarVocabulary> vocabulary = opened.model->vocabulary;
  std::optional<Error> error;
  std::function<void()> compile = [&opened, &grammar, &vocabulary, &error] {
    if (vocabulary == nullptr) {
      auto made = text::GrammarVocabulary::make(*opened.text->text, opened.text->vocab);
      if (!made) {
        error = made.error();
        return;
      }
      vocabulary = std::move(*made);
    }
    if (const auto matcher = text::GrammarMatcher::open(vocabulary, grammar); !matcher) {
      error = matcher.error();
    }
  };
  co_await context.pool.run(std::move(compile));
  opened.model->vocabulary = std::move(vocabulary);
  if (!error) {
    co_return std::nullopt;
  }
  if (error->code != Code::kInvalidArgument) {
    co_return api::from_error(*error);
  }
  co_return api::invalid_request("response_format",
                                 "response_format: the grammar cannot be used: " + error->message);
}

/// Starts a job that is ready, and answers.
asio::awaitable<void> run(std::shared_ptr<Context> context, HttpExchange& http, GenerationJob job) {
  Result<std::shared_ptr<LiveRequests>> live = LiveRequests::make(context, std::move(job));
  if (!live) {
    api::ApiError error = api::from_error(live.error());
    error.param = "stop";
    co_await respond_error(http, std::move(error));
    co_return;
  }
  co_await generate(http, std::move(live).value());
}

/// Renders and tokenises a conversation. For a thread of the pool.
Result<std::vector<TokenId>> chat_tokens(const text::TextModel& model,
                                         const text::Chat& chat,
                                         text::SpecialTokens special) {
  const Result<std::string> prompt = model.render(chat);
  if (!prompt) {
    return prompt.error();
  }
  return model.tokenizer()->encode(*prompt, special);
}

api::ApiError conversation_error(const Error& error) {
  // Also where the model has no template: the client has to ask for something else.
  api::ApiError wrong = api::invalid_request("messages", error.message);
  return wrong;
}

asio::awaitable<void> chat(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
  auto parsed = api::parse_chat_request(http.request().body);
  if (auto* wrong = std::get_if<api::ApiError>(&parsed)) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  api::ChatRequest request = std::get<0>(std::move(parsed));
  OpenedModel opened = co_await open_model(*context, request.model);
  if (!opened.error) {
    opened.error = turn_away(*context, *opened.model, 1);
  }
  if (opened.error) {
    co_await respond_error(http, std::move(*opened.error));
    co_return;
  }
  std::optional<Result<std::vector<TokenId>>> tokens;
  std::function<void()> tokenise = [&request, &opened, &tokens] {
    const text::Chat conversation{.messages = request.messages,
                                  .variables = request.template_variables,
                                  .add_generation_prompt = request.add_generation_prompt};
    tokens = chat_tokens(*opened.text->text, conversation, text::SpecialTokens::kNone);
  };
  co_await context->pool.run(std::move(tokenise));
  if (!*tokens) {
    co_await respond_error(http, conversation_error(tokens->error()));
    co_return;
  }
  GenerationJob job =
      new_job(*context, opened, http.request(), api::AnswerKind::kChat, request.model);
  job.params = std::move(request.params);
  job.prompts.push_back(std::move(*tokens).value());
  std::optional<api::ApiError> wrong = co_await check_grammar(*context, opened, job.params.grammar);
  if (!wrong) {
    wrong = resolve(*context, opened, "messages", 0, job);
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await run(std::move(context), http, std::move(job));
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

asio::awaitable<void> complete(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
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
  GenerationJob job =
      new_job(*context, opened, http.request(), api::AnswerKind::kCompletion, request.model);
  job.params = std::move(request.params);
  Result<void> read;
  std::function<void()> tokenise = [&request, &opened, &job, &read] {
    read = read_prompts(request, *opened.text->text->tokenizer(), job);
  };
  co_await context->pool.run(std::move(tokenise));
  if (!read) {
    co_await respond_error(http, api::invalid_request("prompt", read.error().message));
    co_return;
  }
  std::optional<api::ApiError> wrong = co_await check_grammar(*context, opened, job.params.grammar);
  if (!wrong) {
    wrong = resolve(*context, opened, "prompt", kCompletionTokens, job);
  }
  if (wrong) {
    co_await respond_error(http, std::move(*wrong));
    co_return;
  }
  co_await run(std::move(context), http, std::move(job));
}

asio::awaitable<void> tokenize(std::shared_ptr<Context> context, HttpExchange& http, std::string) {
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
    tokens = request.prompt ? tokenizer.encode(*request.prompt, special)
                            : chat_tokens(*opened.text->text, conversation, special);
  };
  co_await context->pool.run(std::move(tokenise));
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

asio::awaitable<void> detokenize(std::shared_ptr<Context> context,
                                 HttpExchange& http,
                                 std::string) {
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
  return {{{"POST", "/v1/chat/completions"}, Access::kKey, chat},
          {{"POST", "/v1/completions"}, Access::kKey, complete},
          {{"POST", "/tokenize"}, Access::kKey, tokenize},
          {{"POST", "/detokenize"}, Access::kKey, detokenize}};
}

}  // namespace heddle::gateway
