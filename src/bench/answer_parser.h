#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <simdjson.h>

namespace heddle::bench {

/// What an event of a stream, or an answer as a whole, tells.
struct AnswerNews {
  bool content = false;  ///< It brings text, thought or a call.
  /// Of a completion with `logprobs`, of each token what it is, its log probability and the
  /// likeliest ones', as JSON.
  std::vector<std::string> scores{};
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
