#pragma once

#include <cstdint>
#include <string_view>

namespace heddle::text {

/// How a model spells calls of tools.
enum class ToolFormat : std::uint8_t {
  kNone,
  kHermes,   ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen 2.5 and 3.
  kLlama3,   ///< {"name": ..., "parameters": {...}} from the start, or after <|python_tag|>.
  kMistral,  ///< [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name{...}.
  /// {"name": ..., "arguments": {...}}, or a list of them, from the start: what a model is held to
  /// that has no way of its own, or none that is known.
  kGeneric,
  kHarmony,  ///< <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}:
             ///< gpt-oss.
  kGemma4,   ///< <|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|> (text/gemma4.h).
};

/// How a model marks what it thinks before it answers.
enum class ReasoningFormat : std::uint8_t {
  kNone,
  kThink,    ///< <think>...</think>; where the template opened it, the answer does not.
  kHarmony,  ///< <|channel|>analysis<|message|>...<|end|> (text/harmony.h).
  kGemma4,   ///< <|channel>thought\n...<channel|> (text/gemma4.h).
};

/// The formats that a chat template speaks of; never kGeneric.
[[nodiscard]] ToolFormat tool_format_of(std::string_view chat_template);
[[nodiscard]] ReasoningFormat reasoning_format_of(std::string_view chat_template);
/// Whether a chat template tells the model of tools.
[[nodiscard]] bool describes_tools(std::string_view chat_template);

}  // namespace heddle::text
