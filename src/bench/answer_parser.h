#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace heddle::bench {

/// What an event of a stream, or an answer as a whole, tells.
struct AnswerNews {
  bool content = false;  ///< It brings text, thought or a call.
  std::optional<std::int64_t> prompt_tokens{};
  std::optional<std::int64_t> completion_tokens{};
  std::string error{};
};

/// Reads chunks and answers of /v1/chat/completions and /v1/completions. Owned by one thread.
class AnswerParser {
 public:
  [[nodiscard]] AnswerNews parse(std::string_view json);

 private:
  simdjson::dom::parser parser_{};
};

}  // namespace heddle::bench
