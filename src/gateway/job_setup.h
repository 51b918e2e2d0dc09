#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/error.h"
#include "api/requests.h"
#include "api/responses.h"
#include "gateway/chat_reading.h"
#include "gateway/context.h"
#include "gateway/http_exchange.h"
#include "gateway/live_requests.h"
#include "gateway/sampling.h"
#include "gateway/task.h"

/// The way from a parsed request to a job that can run, shared by the handlers. Loop thread, but
/// for what says that it belongs on the pool.
namespace heddle::gateway {

/// A model and its text part, or what to tell the client.
struct OpenedModel {
  std::shared_ptr<CatalogModel> model{};
  std::shared_ptr<const ModelText> text{};
  std::optional<api::ApiError> error{};

  [[nodiscard]] SamplingLimits limits() const {
    return {.defaults = text->defaults,
            .eos = text->text->eos(),
            .vocab = text->vocab,
            .context = text->context,
            .encodes = text->encodes()};
  }
};

/// What a request wants of a model.
enum class Purpose : std::uint8_t {
  kTokens,     ///< Its tokenizer.
  kGenerates,  ///< Text.
  kEmbeds,     ///< Vectors.
  kScores      ///< How well texts fit each other.
};

/// The model with this name or alias, its text part read. Status 400, saying what it is for, where
/// it is for something else.
Task<OpenedModel> open_model(Context& context, std::string name, Purpose purpose);

/// What is told of a request beyond the quota of its key.
[[nodiscard]] api::ApiError over_quota(const QuotaVerdict& verdict);

/// Sets aside of the quota of a key what a request may use, until `reserved` is gone; why not,
/// where the key's other requests may use it.
[[nodiscard]] std::optional<api::ApiError> set_aside(
    Context& context,
    const Asker& asker,
    std::int64_t tokens,
    std::shared_ptr<const Quotas::Reserved>& reserved);

/// Why so many requests of `asker` for this model are not taken now, if so.
[[nodiscard]] std::optional<api::ApiError> turn_away(const Context& context,
                                                     const CatalogModel& model,
                                                     const Asker& asker,
                                                     std::size_t requests);

/// A job without prompts; its answer's id begins with `prefix`.
[[nodiscard]] GenerationJob new_job(Context& context,
                                    const OpenedModel& opened,
                                    const HttpRequest& request,
                                    api::AnswerKind kind,
                                    const std::string& model,
                                    std::string_view prefix);

/// Letters and digits that nobody had before.
[[nodiscard]] std::string draw_id(Rng& rng);

/// Special tokens around a text, where they are wanted.
[[nodiscard]] inline text::SpecialTokens special_of(bool add) {
  return add ? text::SpecialTokens::kAdd : text::SpecialTokens::kNone;
}

/// Whether the model can be held to `grammar`; its error is the client's, about `param`. A grammar
/// that nobody has sent yet is tried in another process.
Task<std::optional<api::ApiError>> check_grammar(Context& context,
                                                 const OpenedModel& opened,
                                                 const HttpRequest& request,
                                                 spec::Grammar grammar,
                                                 std::string param);

/// Sets the choices of each prompt, or says what is wrong with the request.
/// @param param       What prompts came as.
/// @param max_tokens  For clients that gave none; 0: as far as the context goes.
[[nodiscard]] std::optional<api::ApiError> resolve(Context& context,
                                                   const OpenedModel& opened,
                                                   const std::string& param,
                                                   std::int64_t max_tokens,
                                                   GenerationJob& job);

/// What a model does beside answering, as it is configured or else as its templates say.
struct Abilities {
  bool calls = false;   ///< Tools, where it is left to it.
  bool thinks = false;  ///< And marks that.
};
[[nodiscard]] Abilities abilities_of(const OpenedModel& opened);

/// A conversation as its model reads it.
struct ChatPrompt {
  std::vector<TokenId> tokens{};
  std::string end{};  ///< Its last bytes.
};
/// Renders and tokenises `request` for a model that was opened.
Task<api::Parsed<ChatPrompt>> read_chat(Context& context,
                                        HttpExchange& http,
                                        const OpenedModel& opened,
                                        const api::ChatRequest& request,
                                        TextBounds bounds);

/// What `prepare` makes of a request for the model `name`. A reload may give the name to another
/// model while prompts are read; then the request is prepared again, for that one.
Task<api::Parsed<GenerationJob>> prepare_current(
    Context& context,
    const std::string& name,
    std::function<Task<api::Parsed<GenerationJob>>()> prepare);

/// A job for plain completions, ready to run: prompts read, parameters resolved; or what to tell
/// the client.
/// @param max_tokens  Of an answer whose request names no length; 0: as far as the model goes.
Task<api::Parsed<GenerationJob>> prepare_completion(std::shared_ptr<Context> context,
                                                    HttpExchange& http,
                                                    api::CompletionRequest request,
                                                    std::string_view prefix,
                                                    std::int64_t max_tokens);

/// Everything from a chat's request to its job.
Task<api::Parsed<GenerationJob>> prepare_chat(std::shared_ptr<Context> context,
                                              HttpExchange& http,
                                              api::ChatRequest request,
                                              std::string_view prefix);

}  // namespace heddle::gateway
