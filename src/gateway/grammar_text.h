#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace heddle::gateway {

/// A text as a string of a grammar in Lark.
[[nodiscard]] std::string literal(std::string_view text);

/// A marker: the special token that it is, or its text.
[[nodiscard]] std::string marker(std::string_view text, const text::Tokenizer& tokenizer);

}  // namespace heddle::gateway
