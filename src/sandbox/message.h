#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "spec/sampling.h"

namespace heddle::sandbox {

/// A grammar for a model.
struct GrammarTrial {
  std::string directory{};  ///< Of the model.
  std::int64_t vocab = 0;   ///< Of the model, which may be more than its tokenizer's.
  spec::Grammar grammar{};
};

/// What the process is asked.
struct Question {
  bool files = false;    ///< To try the files in `trial.directory`; else the grammar.
  GrammarTrial trial{};  ///< Without a grammar where files are to be tried.
};

/// What it says: what it begins with, or, at the end, how it went.
struct Answer {
  std::string begins{};  ///< Empty at the end.
  std::optional<Error> error{};
};

/// The longest text of an error, so that nobody keeps or sends more.
inline constexpr std::size_t kErrorBytesMax = 1000;

[[nodiscard]] std::string encode(const Question& question);
[[nodiscard]] std::string encode(const Answer& answer);
/// kCorrupt for bytes that encode() does not make.
[[nodiscard]] Result<Question> decode_question(std::string_view bytes);
[[nodiscard]] Result<Answer> decode_answer(std::string_view bytes);

}  // namespace heddle::sandbox
