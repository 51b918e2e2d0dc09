#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "spec/sampling.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "text/text_model.h"

namespace heddle::gateway {

/// Where the text of an answer ends, but for what the engine says.
struct TextEnds {
  std::vector<std::string> stop{};  ///< Before the first of these; none empty.
  bool include_stop = false;        ///< Or behind it.
  std::int64_t min_tokens = 0;      ///< Not within so many tokens.
};

/// Turns the tokens of one answer into the text that the client sees: whole characters only, ended
/// before the first stop string.
class AnswerText {
 public:
  /// kInvalidArgument for a stop string that is empty. Of special tokens only those spelled as one
  /// of `markers` are text.
  static Result<AnswerText> make(std::shared_ptr<const text::TextModel> model,
                                 TextEnds ends,
                                 std::span<const std::string_view> markers = {});

  /// Takes the next token, which was drawn for this answer; `finish` is the engine's word on
  /// whether it was the last. Returns the text that became final. After ended() nothing may come.
  std::string push(TokenId token, spec::FinishReason finish);

  [[nodiscard]] bool ended() const { return finish_ != spec::FinishReason::kNone; }
  [[nodiscard]] spec::FinishReason finish() const { return finish_; }
  /// Which stop string ended it, by its index, of which the engine does not know.
  [[nodiscard]] std::optional<std::size_t> stop() const { return stopped_by_; }
  /// How many tokens were pushed.
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }
  /// How many bytes of text the tokens have become so far, those that are held back included.
  [[nodiscard]] std::size_t decoded() const { return decoded_; }
  /// How many of them push() has returned.
  [[nodiscard]] std::size_t shown() const { return shown_; }

 private:
  AnswerText(std::shared_ptr<const text::TextModel> model,
             text::StopStrings stop,
             TextEnds ends,
             std::vector<TokenId> markers);

  std::string pass(std::string text);

  std::shared_ptr<const text::TextModel> model_;
  text::Detokenizer detokenizer_;
  text::StopStrings stop_;
  TextEnds ends_;
  std::vector<TokenId> markers_;
  spec::FinishReason finish_ = spec::FinishReason::kNone;
  std::optional<std::size_t> stopped_by_{};
  std::int64_t tokens_ = 0;
  std::size_t decoded_ = 0;
  std::size_t shown_ = 0;
};

}  // namespace heddle::gateway
