#pragma once

#include <optional>
#include <string>

#include "api/tools.h"
#include "text/tokenizer.h"

namespace heddle::gateway {

/// Rules of Lark for calls as Gemma 4 spells them (text/gemma4.h): `one`, a call of any of the
/// tools that may be called, and those that it needs, of which `argumentsN` is that of the tool
/// with number N. A schema's types, enumerations, references, alternatives, items, properties in
/// the order in which models are trained to write them, and which are required are kept to; what
/// else it says is not (gemma4_ignores()).
[[nodiscard]] std::string gemma4_rules(const api::ToolUse& use, const text::Tokenizer& tokenizer);

/// What to warn of where the schemas of tools that may be called say something that gemma4_rules()
/// does not keep to: the first such keyword.
[[nodiscard]] std::optional<std::string> gemma4_ignores(const api::ToolUse& use);

}  // namespace heddle::gateway
