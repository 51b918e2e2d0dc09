#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace heddle::text {

/// How a model spells calls of tools.
enum class ToolFormat : std::uint8_t {
  kNone,
  kHermes,   ///< <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Hermes, Qwen 2.5 and 3.
  kLlama3,   ///< {"name": ..., "parameters": {...}} from the start, or after <|python_tag|>.
  kMistral,  ///< [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...], or [TOOL_CALLS]name{...}.
};

/// How a model marks what it thinks before it answers.
enum class ReasoningFormat : std::uint8_t {
  kNone,
  kThink,  ///< <think>...</think>; where the template opened it, the answer does not.
};

/// The format with that name of the configuration (and of vLLM's options): none, hermes,
/// llama3_json or mistral. Nothing for other names.
[[nodiscard]] std::optional<ToolFormat> tool_format_named(std::string_view name);
/// none, think; deepseek_r1 and qwen3 are also think.
[[nodiscard]] std::optional<ReasoningFormat> reasoning_format_named(std::string_view name);

/// The formats that a chat template speaks of.
[[nodiscard]] ToolFormat tool_format_of(std::string_view chat_template);
[[nodiscard]] ReasoningFormat reasoning_format_of(std::string_view chat_template);

}  // namespace heddle::text
