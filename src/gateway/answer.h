#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "api/responses.h"
#include "base/result.h"
#include "core/serving.h"
#include "gateway/answer_text.h"
#include "text/text_model.h"

namespace heddle::gateway {

/// One answer on its way to the client: what its tokens have become, piece by piece. Loop thread.
class Answer {
 public:
  struct Options {
    std::vector<std::string> stop{};
    bool logprobs = false;         ///< Tell the tokens' log probabilities.
    std::int64_t text_offset = 0;  ///< Characters that the client gets before the first token's.
  };

  /// kInvalidArgument for stop strings that are none.
  static Result<Answer> make(std::shared_ptr<const text::TextModel> model, Options options);

  /// Takes the next token. Returns what is new, with the finish when it was the last; its index is
  /// the caller's to set. After ended() nothing may come.
  [[nodiscard]] api::Choice push(const core::TokenEvent& event);

  [[nodiscard]] bool ended() const { return text_.ended(); }
  /// Whether a stop string ended it, of which the engine does not know.
  [[nodiscard]] bool stopped_by_string() const { return text_.stopped_by_string(); }
  /// How many tokens were pushed.
  [[nodiscard]] std::int64_t tokens() const { return text_.tokens(); }

 private:
  /// What is to be told of a token once some of its text is shown.
  struct Held {
    std::size_t begin = 0;  ///< Where its text begins [bytes].
    api::TokenLogprobs logprobs{};
  };

  Answer(std::shared_ptr<const text::TextModel> model, AnswerText text, Options options);

  [[nodiscard]] api::TokenLogprobs describe(const core::TokenEvent& event) const;
  [[nodiscard]] std::vector<api::TokenLogprobs> take_logprobs();

  std::shared_ptr<const text::TextModel> model_;
  AnswerText text_;
  bool logprobs_;
  std::int64_t text_offset_;
  std::deque<Held> held_{};
};

}  // namespace heddle::gateway
