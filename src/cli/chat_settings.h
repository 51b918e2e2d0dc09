#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace heddle::cli {

/// What a chat on the terminal asks its model beside the messages.
struct ChatSettings {
  std::string system{};  ///< Said before everything else; empty: nothing is.
  std::optional<double> temperature{};
  std::optional<double> top_p{};
  std::optional<std::int64_t> max_tokens{};
  std::optional<std::int64_t> seed{};

  /// Takes over "NAME VALUE", as behind /set; an empty value takes a setting back.
  /// kInvalidArgument, with what would be right.
  Result<void> set(std::string_view text);
  /// The settings as lines for people; what is not set is the model's own.
  [[nodiscard]] std::string shown() const;
  /// Members of a request, each with a comma before it.
  [[nodiscard]] std::string members() const;
};

/// A prompt and what was piped in beside it, as one.
[[nodiscard]] std::string joined_prompt(const std::string& prompt, std::string piped);

}  // namespace heddle::cli
