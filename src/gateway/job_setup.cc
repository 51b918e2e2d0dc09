#include "gateway/job_setup.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "base/log.h"
#include "gateway/gemma4_grammar.h"
#include "gateway/task.h"
#include "gateway/text_work.h"
#include "gateway/tool_grammar.h"
#include "text/gemma4.h"
#include "text/harmony.h"
#include "text/reasoning.h"
#include "text/tool_instructions.h"

namespace heddle::gateway {

namespace asio = boost::asio;

namespace {

/// How the model spells calls, and marks thinking: as configured, else as its templates say.
text::ToolFormat own_tool_format(const OpenedModel& opened) {
  switch (opened.model->config.tool_parser) {
    case config::ToolParser::kAuto:
      return opened.text->text->tool_format();
    case config::ToolParser::kNone:
      return text::ToolFormat::kNone;
    case config::ToolParser::kHermes:
      return text::ToolFormat::kHermes;
    case config::ToolParser::kLlama3Json:
      return text::ToolFormat::kLlama3;
    case config::ToolParser::kMistral:
      return text::ToolFormat::kMistral;
  }
  return text::ToolFormat::kNone;
}

/// How calls in its answer are spelled. Those that must be there need a form.
text::ToolFormat tool_format(const OpenedModel& opened, const api::ToolUse& use) {
  if (use.choice == api::ToolChoice::kNone) {
    return text::ToolFormat::kNone;
  }
  const text::ToolFormat own = own_tool_format(opened);
  return own == text::ToolFormat::kNone && use.forced() ? text::ToolFormat::kGeneric : own;
}

/// What to tell a model of tools, of which neither its template knows anything nor its
/// configuration; nothing for any other.
std::optional<std::string> instructions_for(const OpenedModel& opened, const api::ToolUse& use) {
  if (opened.text->text->describes_tools() || own_tool_format(opened) != text::ToolFormat::kNone) {
    return std::nullopt;
  }
  return use.forced() ? text::tool_instructions(use.json, use.named, use.several()) : "";
}

text::ReasoningFormat reasoning_format(const OpenedModel& opened) {
  switch (opened.model->config.reasoning_parser) {
    case config::ReasoningParser::kAuto:
      return opened.text->text->reasoning_format();
    case config::ReasoningParser::kNone:
      return text::ReasoningFormat::kNone;
    case config::ReasoningParser::kThink:
      return text::ReasoningFormat::kThink;
  }
  return text::ReasoningFormat::kNone;
}

/// Whether what stands around Gemma 4's thoughts are tokens of the model, as grammars take them.
bool has_thought_tokens(const text::Tokenizer& tokenizer) {
  return std::ranges::all_of(text::kGemma4Thought, [&tokenizer](std::string_view marker) {
    const std::optional<TokenId> id = tokenizer.token_to_id(marker);
    return id && tokenizer.is_special(*id);
  });
}

/// What a model that marks its thoughts so may think before an answer to this prompt.
spec::Thought thought_before(text::ReasoningFormat format,
                             std::string_view prompt,
                             const text::Tokenizer& tokenizer) {
  // Of harmony the prompt has the head of the answer's message then: opening_of().
  const bool gemma4 = format == text::ReasoningFormat::kGemma4 && has_thought_tokens(tokenizer);
  if (format != text::ReasoningFormat::kThink && !gemma4) {
    return spec::Thought::kNone;
  }
  switch (gemma4 ? text::gemma4_prompt_end(prompt) : text::prompt_end(prompt)) {
    case text::PromptEnd::kBefore:
      return spec::Thought::kMay;
    case text::PromptEnd::kWithin:
      return spec::Thought::kBegun;
    case text::PromptEnd::kAfter:
      return spec::Thought::kNone;
  }
  return spec::Thought::kNone;
}

/// What the prompt has behind the template's: how the answer begins. In harmony's format a head
/// belongs before that, and before an answer that is held to a format.
std::string opening_of(const OpenedModel& opened, const api::ChatRequest& request) {
  const bool harmony = own_tool_format(opened) == text::ToolFormat::kHarmony ||
                       reasoning_format(opened) == text::ReasoningFormat::kHarmony;
  const bool held = request.params.grammar.constrains() && !request.tools.forced();
  const bool opens = harmony && request.add_generation_prompt && !request.continued &&
                     (held || !request.answer_begins.empty());
  return opens ? std::string(text::kHarmonyFinal) + request.answer_begins : request.answer_begins;
}

/// Takes the tools of a chat into its job: which calls to look for, and the grammar of an answer
/// that must be calls, or either calls or of the format that was asked for.
void use_tools(const OpenedModel& opened,
               const api::ToolUse& use,
               text::ToolFormat format,
               GenerationJob& job) {
  job.tools = format;
  spec::Grammar& answer = job.params.grammar;
  if (use.choice == api::ToolChoice::kNone || (!use.forced() && !answer.constrains())) {
    return;
  }
  if (!use.forced() && !can_stand_beside_calls(answer, format)) {
    job.tools = text::ToolFormat::kNone;  // What the answer is held to leaves no room for calls.
    return;
  }
  answer = tool_grammar(format,
                        use,
                        *opened.text->text->tokenizer(),
                        use.forced() ? spec::Grammar() : answer);  // Calls alone have no format.
}

/// What a request may use of its key's tokens: its prompts, and the answers whose length it names.
std::int64_t most_tokens(const GenerationJob& job) {
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < job.prompts.size(); ++i) {
    tokens += std::ssize(job.prompts[i]);
    for (const spec::SamplingParams& choice : job.choices[i]) {
      tokens += job.params.max_tokens ? std::min(choice.max_tokens, *job.params.max_tokens) : 0;
    }
  }
  return tokens;
}

/// Log probabilities of the prompts of a request, in its answer.
constexpr std::int64_t kScoresMax = 1 << 17;

/// All log probabilities of an answer are written at once, on the loop.
std::optional<api::ApiError> too_much_to_score(const GenerationJob& job) {
  const std::int64_t echoed = job.params.score_prompt ? 1 + std::int64_t{*job.params.logprobs} : 0;
  const std::int64_t scored =
      job.params.prompt_logprobs ? 1 + std::int64_t{*job.params.prompt_logprobs} : 0;
  std::int64_t tokens = 0;
  for (const std::vector<TokenId>& prompt : job.prompts) {
    tokens += std::ssize(prompt) * std::int64_t{job.params.choices};
  }
  const std::int64_t told = tokens * (echoed + scored);
  if (told <= kScoresMax) {
    return std::nullopt;
  }
  const std::string key = echoed > 0 ? "echo" : "prompt_logprobs";
  const std::string with = echoed > 0 ? "with logprobs " + std::to_string(*job.params.logprobs)
                                      : "is " + std::to_string(scored - 1);
  return api::invalid_request(key,
                              key + ": " + with + ", " + std::to_string(tokens) +
                                  " tokens of prompts come to " + std::to_string(told) +
                                  " log probabilities; want at most " + std::to_string(kScoresMax) +
                                  " in one request");
}

}  // namespace

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

api::ApiError over_quota(const QuotaVerdict& verdict) {
  api::ApiError error = api::concurrency_limit(verdict.reason + "; try again later");
  error.code = "rate_limit_exceeded";
  error.retry_after = static_cast<std::int32_t>(verdict.retry_after);
  return error;
}

std::optional<api::ApiError> set_aside(Context& context,
                                       const Asker& asker,
                                       std::int64_t tokens,
                                       std::shared_ptr<const Quotas::Reserved>& reserved) {
  Quotas::Reservation made = context.quotas.reserve(asker.tenant, tokens, context.now());
  reserved = std::move(made.reserved);
  return made.refusal ? std::optional(over_quota(*made.refusal)) : std::nullopt;
}

std::optional<api::ApiError> turn_away(const Context& context,
                                       const CatalogModel& model,
                                       const Asker& asker,
                                       std::size_t requests) {
  if (context.draining || context.serving == nullptr) {
    return api::unavailable("the server is shutting down");
  }
  const std::int64_t limit =
      model.config.concurrency_limit > 0 ? model.config.concurrency_limit : context.limits.queue;
  const ModelQueue& queue = model.queue;
  const auto count = static_cast<std::int64_t>(requests);
  if (queue.has_room(limit, asker.share, count)) {
    return std::nullopt;
  }
  const std::string most = std::to_string(limit) + " at once";
  const bool full = queue.size() + count > limit;
  return api::concurrency_limit(
      full ? "the model \"" + model.config.id + "\" has " + std::to_string(queue.size()) +
                 " requests running and waiting, and takes at most " + most + "; try again later"
           : "this client has " + std::to_string(queue.size_of(asker.share)) +
                 " requests running and waiting for the model \"" + model.config.id +
                 "\", which takes " + most +
                 ": more would leave too little room for others; try again later");
}

namespace {

/// Why the model is not for that, if so.
std::optional<api::ApiError> check_purpose(const OpenedModel& opened, Purpose purpose) {
  const ModelText& text = *opened.text;
  const bool scores = text.encoder.scores;
  const std::string what = "model: \"" + opened.model->config.id + "\" ";
  const std::string is =
      what + (scores           ? "scores pairs of texts: ask it by /v1/rerank or /v1/score"
              : text.encodes() ? "makes vectors of texts: ask it by /v1/embeddings"
                               : "generates text");
  switch (purpose) {
    case Purpose::kTokens:
      return std::nullopt;
    case Purpose::kGenerates:
      return text.encodes()
                 ? std::optional(api::invalid_request("model", is + "; it generates nothing"))
                 : std::nullopt;
    case Purpose::kEmbeds:
      return scores ? std::optional(api::invalid_request("model", is)) : std::nullopt;
    case Purpose::kScores:
      return scores ? std::nullopt
                    : std::optional(api::invalid_request(
                          "model", is + "; want a model that scores pairs of texts"));
  }
  return std::nullopt;
}

}  // namespace

Task<OpenedModel> open_model(Context& context, std::string name, Purpose purpose) {
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
    opened.error = check_purpose(opened, purpose);
  } else {
    log::error("a model cannot be used",
               {{"model", opened.model->config.id}, {"why", text.error().message}});
    opened.error = api::from_error(text.error());
    // The client named a model that is configured: it is not the client's mistake.
    if (opened.error->status < 500) {
      opened.error->status = 500;
      opened.error->type = "server_error";
    }
  }
  co_return opened;
}

std::optional<api::ApiError> resolve(Context& context,
                                     const OpenedModel& opened,
                                     const std::string& param,
                                     std::int64_t max_tokens,
                                     GenerationJob& job) {
  const std::uint64_t seed = context.rng.next();
  if (auto wrong = too_much_to_score(job)) {
    return wrong;
  }
  auto words = tokens_of_words(job.params.bad_words, *opened.text->text->tokenizer());
  if (auto* wrong = std::get_if<api::ApiError>(&words)) {
    return *wrong;
  }
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
    for (spec::SamplingParams& choice : job.choices.back()) {
      choice.bad_words = std::get<0>(words);
    }
  }
  if (auto full = turn_away(context, *opened.model, job.asker, job.places())) {
    return full;
  }
  return set_aside(context, job.asker, most_tokens(job), job.reserved);
}

GenerationJob new_job(Context& context,
                      const OpenedModel& opened,
                      const HttpRequest& request,
                      api::AnswerKind kind,
                      const std::string& model,
                      std::string_view prefix) {
  GenerationJob job{.model = opened.model, .text = opened.text};
  job.head = {.kind = kind,
              .id = std::string(prefix) + draw_id(context.rng),
              .created = wall_clock_ms() / 1000,
              .model = model,
              .fingerprint = context.fingerprint};
  job.request_id = request.request_id;
  job.least_priority = request.principal.least_priority;
  job.asker = asker_of(request);
  job.endpoint = request.path;
  return job;
}

Task<std::optional<api::ApiError>> check_grammar(Context& context,
                                                 const OpenedModel& opened,
                                                 const HttpRequest& request,
                                                 spec::Grammar grammar,
                                                 std::string param) {
  if (!grammar.constrains()) {
    co_return std::nullopt;
  }
  const spec::Grammar asked = grammar;
  sandbox::GrammarTrial trial{.directory = opened.text->directory,
                              .vocab = opened.text->vocab,
                              .grammar = std::move(grammar)};
  const Result<void> tried = co_await context.grammars.check(request.client(), std::move(trial));
  if (tried) {
    co_return std::nullopt;
  }
  const Error& error = tried.error();
  if (error.code == Code::kInvalidArgument) {
    co_return grammar_fault(param, asked, error.message);
  }
  if (error.code == Code::kResourceExhausted) {
    co_return api::concurrency_limit(error.message);
  }
  co_return api::from_error(error);
}

Abilities abilities_of(const OpenedModel& opened) {
  return {.calls = own_tool_format(opened) != text::ToolFormat::kNone,
          .thinks = reasoning_format(opened) != text::ReasoningFormat::kNone};
}

Task<api::Parsed<ChatPrompt>> read_chat(Context& context,
                                        HttpExchange& http,
                                        const OpenedModel& opened,
                                        const api::ChatRequest& request,
                                        TextBounds bounds) {
  const bool none = request.tools.choice == api::ToolChoice::kNone;
  const text::Chat conversation{.messages = request.messages.json,
                                .tools = none ? std::string_view() : request.tools.json,
                                .variables = request.template_variables,
                                .add_generation_prompt = request.add_generation_prompt};
  const std::string opening = opening_of(opened, request);
  ChatReading reading(*opened.text->text,
                      conversation,
                      text::SpecialTokens::kNone,
                      std::move(bounds),
                      instructions_for(opened, request.tools),
                      opening,
                      request.continued);
  std::function<bool()> step = [&reading] { return reading.step(); };
  // A response that goes on with a kept one has a longer conversation than body.
  const std::size_t text_bytes = std::max(http.request().body.size(), request.messages.json.size());
  std::optional<api::ApiError> wrong =
      co_await work_on_text(context, http, text_bytes, std::move(step));
  if (wrong) {
    co_return *wrong;
  }
  auto tokens = reading.take();
  if (auto* refused = std::get_if<api::ApiError>(&tokens)) {
    co_return *refused;
  }
  co_return ChatPrompt{.tokens = std::get<0>(std::move(tokens)), .end = reading.end()};
}

namespace {

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

/// As prepare_completion(), by the models as they are when it begins.
Task<api::Parsed<GenerationJob>> completion_job(std::shared_ptr<Context> context,
                                                HttpExchange& http,
                                                const api::CompletionRequest& request,
                                                std::string_view prefix,
                                                std::int64_t max_tokens) {
  OpenedModel opened = co_await open_model(*context, request.model, Purpose::kGenerates);
  if (!opened.error) {
    opened.error =
        turn_away(*context, *opened.model, asker_of(http.request()), request.prompts.size());
  }
  if (opened.error) {
    co_return *opened.error;
  }
  GenerationJob job = new_job(
      *context, opened, http.request(), api::AnswerKind::kCompletion, request.model, prefix);
  job.params = request.params;
  job.params.score_prompt = request.echo && job.params.logprobs.has_value();
  job.head.warnings = job.params.warnings;
  std::optional<api::ApiError> wrong = co_await read_prompts(*context, http, opened, request, job);
  if (!wrong) {
    wrong = co_await check_grammar(
        *context, opened, http.request(), job.params.grammar, "response_format");
  }
  if (!wrong) {
    wrong = resolve(*context, opened, "prompt", max_tokens, job);
  }
  if (wrong) {
    co_return *wrong;
  }
  co_return job;
}

/// As prepare_chat(), likewise.
Task<api::Parsed<GenerationJob>> chat_job(std::shared_ptr<Context> context,
                                          HttpExchange& http,
                                          const api::ChatRequest& request,
                                          std::string_view prefix) {
  OpenedModel opened = co_await open_model(*context, request.model, Purpose::kGenerates);
  if (!opened.error) {
    opened.error = turn_away(*context, *opened.model, asker_of(http.request()), 1);
  }
  const TextBounds bounds = opened.error ? TextBounds() : prompt_bounds(*opened.text, "messages");
  if (!opened.error) {
    opened.error = check_bytes(request.messages.text_bytes, bounds);
  }
  if (opened.error) {
    co_return *opened.error;
  }
  GenerationJob job =
      new_job(*context, opened, http.request(), api::AnswerKind::kChat, request.model, prefix);
  auto read = co_await read_chat(*context, http, opened, request, bounds);
  if (auto* refused = std::get_if<api::ApiError>(&read)) {
    co_return *refused;
  }
  ChatPrompt prompt = std::get<0>(std::move(read));
  job.prompt_end = std::move(prompt.end);
  job.params = request.params;
  job.prompts.push_back(std::move(prompt.tokens));
  const text::ToolFormat format = tool_format(opened, request.tools);
  use_tools(opened, request.tools, format, job);
  const bool spells = job.tools == text::ToolFormat::kGemma4 && job.params.grammar.constrains();
  if (const auto ignored = spells ? gemma4_ignores(request.tools) : std::nullopt) {
    job.params.warnings.push_back(*ignored);
  }
  if (request.tools.choice == api::ToolChoice::kAuto && format == text::ToolFormat::kNone) {
    job.params.warnings.emplace_back(
        "tools: how this model spells calls is not known, so none are looked for; tool_choice "
        "\"required\" or a named tool works, and so does tool_parser in the configuration");
  }
  job.head.warnings = job.params.warnings;
  job.reasoning = reasoning_format(opened);
  if (job.params.grammar.constrains()) {
    job.params.grammar.thought =
        thought_before(job.reasoning, job.prompt_end, *opened.text->text->tokenizer());
    if (job.params.grammar.thought == spec::Thought::kNone) {
      job.reasoning = text::ReasoningFormat::kNone;  // All of it is the answer.
    }
  }
  const bool calls = request.tools.choice != api::ToolChoice::kNone && !request.tools.list.empty();
  const std::string param = calls ? "tools" : "response_format";
  std::optional<api::ApiError> wrong =
      co_await check_grammar(*context, opened, http.request(), job.params.grammar, param);
  if (!wrong) {
    wrong = resolve(*context, opened, "messages", 0, job);
  }
  if (wrong) {
    co_return *wrong;
  }
  co_return job;
}

/// Whether a job is for the model that has its name now.
bool is_current(const Context& context,
                const std::string& name,
                const api::Parsed<GenerationJob>& prepared) {
  const auto* job = std::get_if<GenerationJob>(&prepared);
  const std::shared_ptr<CatalogModel> now = job == nullptr ? nullptr : context.catalog.find(name);
  return job == nullptr || (now != nullptr && now->id == job->model->id);
}

}  // namespace

Task<api::Parsed<GenerationJob>> prepare_current(
    Context& context,
    const std::string& name,
    std::function<Task<api::Parsed<GenerationJob>>()> prepare) {
  for (;;) {
    auto prepared = co_await prepare();
    if (is_current(context, name, prepared)) {
      co_return prepared;
    }
  }
}

Task<api::Parsed<GenerationJob>> prepare_completion(std::shared_ptr<Context> context,
                                                    HttpExchange& http,
                                                    api::CompletionRequest request,
                                                    std::string_view prefix,
                                                    std::int64_t max_tokens) {
  std::function<Task<api::Parsed<GenerationJob>>()> prepare = [&] {
    return completion_job(context, http, request, prefix, max_tokens);
  };
  co_return co_await prepare_current(*context, request.model, std::move(prepare));
}

Task<api::Parsed<GenerationJob>> prepare_chat(std::shared_ptr<Context> context,
                                              HttpExchange& http,
                                              api::ChatRequest request,
                                              std::string_view prefix) {
  std::function<Task<api::Parsed<GenerationJob>>()> prepare = [&] {
    return chat_job(context, http, request, prefix);
  };
  co_return co_await prepare_current(*context, request.model, std::move(prepare));
}

}  // namespace heddle::gateway
