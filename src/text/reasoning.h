#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/answer_format.h"

namespace heddle::text {

/// Whether a prompt ends within a thought, before one or after one that is over; before one there
/// may be none.
enum class PromptEnd : std::uint8_t { kBefore, kWithin, kAfter };
[[nodiscard]] PromptEnd prompt_end(std::string_view prompt);

/// Parts what a model thinks from what it answers, as the text arrives. Thinking is what stands
/// from the beginning to </think>, where the answer begins with <think> or the prompt ended with
/// it. The markers and the white space around them are dropped. The result does not depend on the
/// portions in which the text comes. Owned by one thread.
class ReasoningSplitter {
 public:
  /// @param prompt  The prompt as text: where it ends with an open <think>, the answer begins
  /// within.
  ReasoningSplitter(ReasoningFormat format, std::string_view prompt);

  struct Parts {
    std::string reasoning{};
    std::string text{};
  };
  Parts push(std::string_view text);
  /// The end of the answer.
  Parts finish();

  /// Whether what comes next is thought, unless it ends thinking.
  [[nodiscard]] bool thinking() const { return state_ == State::kThinking; }

 private:
  enum class State : std::uint8_t {
    kStart,  ///< Nothing but white space, or the beginning of <think>.
    kThinking,
    kAfter,  ///< White space after </think>.
    kText,
  };

  void step(char c, Parts& parts);
  void thinking_step(char c, Parts& parts);

  State state_;
  bool thought_ = false;   ///< Some reasoning was told, so that white space before more counts.
  std::string held_{};     ///< White space, and the beginning of a marker.
  std::size_t white_ = 0;  ///< How many characters of white space it begins with, at least.
};

}  // namespace heddle::text
