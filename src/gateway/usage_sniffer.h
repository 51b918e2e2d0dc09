#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::gateway {

/// Finds the `usage` of an answer that passes by, whole or as events, without parsing the rest.
/// OpenAI's field names and Anthropic's; the last value of each counts. Of an answer in Ollama's
/// form the counts that stand at its end.
class UsageSniffer {
 public:
  explicit UsageSniffer(bool ollama = false) : ollama_(ollama) {}

  /// Takes in the next bytes of the answer.
  void see(std::string_view bytes);

  [[nodiscard]] std::optional<std::int64_t> prompt_tokens() const { return prompt_; }
  [[nodiscard]] std::optional<std::int64_t> completion_tokens() const { return completion_; }
  [[nodiscard]] std::optional<std::int64_t> cached_tokens() const { return cached_; }

 private:
  void see_end(std::string_view bytes);

  bool ollama_;
  std::string open_{};  ///< From a `"usage"` that has not been read to its end; else a few bytes.
  std::optional<std::int64_t> prompt_{};
  std::optional<std::int64_t> completion_{};
  std::optional<std::int64_t> cached_{};
};

}  // namespace heddle::gateway
