#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/responses.h"
#include "base/result.h"
#include "core/serving.h"
#include "gateway/answer_text.h"
#include "text/answer_format.h"
#include "text/gemma4.h"
#include "text/harmony.h"
#include "text/reasoning.h"
#include "text/text_model.h"
#include "text/tool_calls.h"

namespace heddle::gateway {

/// One answer on its way to the client: what its tokens have become, piece by piece. Loop thread.
class Answer {
 public:
  struct Options {
    std::vector<std::string> stop{};
    bool include_stop = false;    ///< The text ends with the stop string that ended it.
    std::int64_t min_tokens = 0;  ///< No stop string counts within so many tokens.
    text::ToolFormat tools = text::ToolFormat::kNone;  ///< Of the calls to find.
    text::GiveCalls give_calls = text::GiveCalls::kWhole;
    text::ReasoningFormat reasoning = text::ReasoningFormat::kNone;
    std::string prompt_end{};  ///< How the prompt ends, for thinking that began there.
    bool logprobs = false;     ///< Tell the tokens' log probabilities.
    /// With `logprobs`: those of these tokens are told too, before the answer's, which they begin.
    std::vector<TokenId> prompt{};
    std::size_t top = 0;  ///< Of each of those, so many of the likeliest at most.
    /// The log probabilities of these tokens, which are the prompt, are told beside the answer,
    /// with so many of the likeliest at most.
    std::vector<TokenId> scored{};
    std::size_t scored_top = 0;
    bool prompt_only = false;  ///< Nothing is shown of what was generated.
  };

  /// kInvalidArgument for stop strings that are none.
  static Result<Answer> make(std::shared_ptr<const text::TextModel> model, Options options);

  /// Takes the next token. Returns what is new, with the finish when it was the last; its index and
  /// the ids of its calls are the caller's to set. After ended() nothing may come.
  [[nodiscard]] api::Choice push(const core::TokenEvent& event);

  [[nodiscard]] bool ended() const { return text_.ended(); }
  /// Whether a stop string ended it, of which the engine does not know.
  [[nodiscard]] bool stopped_by_string() const { return text_.stop().has_value(); }
  /// How many tokens were generated for it.
  [[nodiscard]] std::int64_t tokens() const { return prompt_only_ ? 0 : text_.tokens(); }
  /// Of them, those that were thoughts.
  [[nodiscard]] std::int64_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  /// What is to be told of a token once some of its text is shown.
  struct Held {
    std::size_t begin = 0;  ///< Where its text begins [bytes].
    api::TokenLogprobs logprobs{};
  };

  Answer(std::shared_ptr<const text::TextModel> model, AnswerText text, const Options& options);

  void part(std::string text, api::Choice& news);
  [[nodiscard]] text::HarmonyParser::Found take_apart(const std::string& text);
  [[nodiscard]] bool thinking() const;

  [[nodiscard]] api::TokenChance chance(const spec::TokenLogprob& one) const;
  [[nodiscard]] api::TokenLogprobs describe(const std::vector<spec::TokenLogprob>& told) const;
  [[nodiscard]] std::vector<api::TokenLogprobs> describe_prompt(const core::TokenEvent& first);
  [[nodiscard]] api::PromptLogprobs score_prompt(const core::TokenEvent& first);
  [[nodiscard]] std::vector<api::TokenLogprobs> take_logprobs();

  std::shared_ptr<const text::TextModel> model_;
  AnswerText text_;
  std::vector<std::string> stop_;
  // One of these in place of the next two.
  std::optional<text::HarmonyParser> harmony_{};
  std::optional<text::Gemma4Parser> gemma4_{};
  text::ReasoningSplitter reasoning_;
  text::ToolCallParser tools_;
  std::uint32_t calls_ = 0;
  std::int64_t reasoning_tokens_ = 0;
  bool logprobs_;
  std::vector<TokenId> prompt_;  ///< Until its tokens are told.
  std::size_t top_;
  std::vector<TokenId> scored_;  ///< Likewise.
  std::size_t scored_top_;
  bool prompt_only_;
  std::int64_t text_offset_ = 0;
  std::deque<Held> held_{};
};

}  // namespace heddle::gateway
