#include "text/answer_format.h"

namespace heddle::text {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_harmony(std::string_view chat_template) {
  return contains(chat_template, "<|channel|>") && contains(chat_template, "<|message|>");
}

}  // namespace

ToolFormat tool_format_of(std::string_view chat_template) {
  if (is_harmony(chat_template)) {
    return ToolFormat::kHarmony;
  }
  if (contains(chat_template, "<|tool_call>") && contains(chat_template, "<tool_call|>")) {
    return ToolFormat::kGemma4;
  }
  if (contains(chat_template, "<tool_call>")) {
    return ToolFormat::kHermes;
  }
  if (contains(chat_template, "[TOOL_CALLS]")) {
    return ToolFormat::kMistral;
  }
  if (contains(chat_template, "<|python_tag|>") ||
      (contains(chat_template, "<|start_header_id|>") && contains(chat_template, "tools"))) {
    return ToolFormat::kLlama3;
  }
  return ToolFormat::kNone;
}

ReasoningFormat reasoning_format_of(std::string_view chat_template) {
  if (is_harmony(chat_template)) {
    return ReasoningFormat::kHarmony;
  }
  if (contains(chat_template, "<|channel>") && contains(chat_template, "<channel|>")) {
    return ReasoningFormat::kGemma4;
  }
  return contains(chat_template, "</think>") ? ReasoningFormat::kThink : ReasoningFormat::kNone;
}

bool describes_tools(std::string_view chat_template) {
  return contains(chat_template, "tools");
}

}  // namespace heddle::text
