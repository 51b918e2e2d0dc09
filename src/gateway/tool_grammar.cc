#include "gateway/tool_grammar.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "gateway/gemma4_grammar.h"
#include "gateway/grammar_text.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

/// A schema of arguments, written as models are trained to: a blank after commas and colons, no
/// other white space. `schema` is an object that is not empty.
std::string json_rule(std::string_view schema) {
  return R"(%json {"x-guidance":{"whitespace_flexible":false,"item_separator":", ",)"
         R"("key_separator":": "},)" +
         std::string(schema.substr(1)) + "\n";
}

/// Rules `call`, any of the tools that may be called, in JSON, and those that it needs. They are
/// numbered as the tools of the request are, by which errors name them.
std::string call_rules(const api::ToolUse& use, std::string_view arguments_key) {
  std::string calls;
  std::string rules;
  for (std::size_t i = 0; i < use.list.size(); ++i) {
    const api::Tool& tool = use.list[i];
    if (use.choice == api::ToolChoice::kNamed && tool.name != use.named) {
      continue;
    }
    spec::JsonWriter name;
    name.string(tool.name);
    const std::string number = std::to_string(i);
    const std::string head =
        "{\"name\": " + name.text() + ", \"" + std::string(arguments_key) + "\": ";
    calls += (calls.empty() ? "call: call" : " | call") + number;
    rules += "call" + number + ": " + literal(head) + " arguments" + number + " \"}\"\n";
    // A grammar of its own for each, so that references within the schema find their root.
    rules += "arguments" + number + ": " + json_rule(tool.parameters);
  }
  return calls + "\n" + rules;
}

/// Rules `call` and what it needs, as gpt-oss names the tool in the head of a message.
std::string harmony_rules(const api::ToolUse& use, const text::Tokenizer& tokenizer) {
  std::string calls;
  std::string rules;
  for (std::size_t i = 0; i < use.list.size(); ++i) {
    const api::Tool& tool = use.list[i];
    if (use.choice == api::ToolChoice::kNamed && tool.name != use.named) {
      continue;
    }
    const std::string number = std::to_string(i);
    calls += (calls.empty() ? "calls: call" : " | call") + number;
    rules += "call" + number + ": " + marker("<|channel|>", tokenizer) + " " +
             literal("commentary to=functions." + tool.name + " ") + " " +
             marker("<|constrain|>", tokenizer) + " \"json\" " + marker("<|message|>", tokenizer) +
             " arguments" + number + "\n";
    rules += "arguments" + number + ": " + json_rule(tool.parameters);
  }
  return calls + "\n" + rules;
}

}  // namespace

bool can_stand_beside_calls(const spec::Grammar& answer, text::ToolFormat format) {
  // Llama's calls begin as JSON does, and llguidance cannot keep both in view.
  const bool distinct = format == text::ToolFormat::kHermes ||
                        format == text::ToolFormat::kMistral || format == text::ToolFormat::kGemma4;
  return distinct && answer.kind == spec::GrammarKind::kJsonSchema &&
         answer.text.starts_with('{') && answer.text != "{}";
}

spec::Grammar tool_grammar(text::ToolFormat format,
                           const api::ToolUse& use,
                           const text::Tokenizer& tokenizer,
                           const spec::Grammar& answer) {
  HEDDLE_CHECK(format != text::ToolFormat::kNone);
  const bool several = use.several();
  std::string lark = "start: calls" + std::string(answer.constrains() ? " | answer" : "") + "\n";
  switch (format) {
    case text::ToolFormat::kNone:
      break;
    case text::ToolFormat::kHermes:
      lark += "calls: one" + std::string(several ? " (\"\\n\" one)*" : "") +
              "\none: " + marker("<tool_call>", tokenizer) + " \"\\n\" call \"\\n\" " +
              marker("</tool_call>", tokenizer) + "\n" + call_rules(use, "arguments");
      break;
    case text::ToolFormat::kLlama3:
      lark += "calls: call" + std::string(several ? " (\"; \" call)*" : "") + "\n" +
              call_rules(use, "parameters");
      break;
    case text::ToolFormat::kMistral:
      lark += "calls: " + marker("[TOOL_CALLS]", tokenizer) + " \"[\" call" +
              std::string(several ? " (\", \" call)*" : "") + " \"]\"\n" +
              call_rules(use, "arguments");
      break;
    case text::ToolFormat::kHarmony:  // A call ends the answer, so there is one.
      lark += harmony_rules(use, tokenizer);
      break;
    case text::ToolFormat::kGemma4:
      lark +=
          "calls: one" + std::string(several ? " one*" : "") + "\n" + gemma4_rules(use, tokenizer);
      break;
    case text::ToolFormat::kGeneric:
      lark += "calls: " + std::string(several ? "\"[\" call (\", \" call)* \"]\"" : "call") + "\n" +
              call_rules(use, "arguments");
      break;
  }
  if (answer.constrains()) {
    lark += "answer: " + json_rule(answer.text);
  }
  return spec::Grammar{.kind = spec::GrammarKind::kLark, .text = std::move(lark)};
}

api::ApiError grammar_fault(const std::string& param,
                            const spec::Grammar& grammar,
                            const std::string& message) {
  // The library's words: `at LINE(COLUMN): what is wrong`, and the lines around, numbered.
  const std::string first = message.substr(0, message.find('\n'));
  const std::size_t colon = first.find("): ");
  const std::string line =
      first.substr(std::min<std::size_t>(3, first.size()), first.find('(') - 3);
  const bool placed = first.starts_with("at ") && colon != std::string::npos;
  const std::size_t at = placed ? message.find("\n   " + line + " | ") : std::string::npos;
  if (grammar.kind != spec::GrammarKind::kLark || at == std::string::npos) {
    return api::invalid_request(param, param + ": the grammar cannot be used: " + message);
  }
  const std::string_view source = std::string_view(message).substr(at + 7 + line.size());
  std::string what = first.substr(colon + 3);
  constexpr std::string_view kSchema = "failed to compile JSON schema: ";
  what = what.starts_with(kSchema) ? what.substr(kSchema.size()) : what;
  if (source.starts_with("arguments") && param == "tools") {
    const std::string number(source.substr(9, source.find(':') - 9));
    const std::string where = "tools[" + number + "].function.parameters";
    return api::invalid_request(where, where + ": the schema cannot be used: " + what);
  }
  if (source.starts_with("answer: %json")) {
    return api::invalid_request("response_format",
                                "response_format: the schema cannot be used: " + what);
  }
  if (grammar.text.starts_with("start: <[")) {
    return api::invalid_request("allowed_token_ids",
                                "allowed_token_ids: cannot be used with this model: " + what);
  }
  return api::invalid_request(param, param + ": the grammar cannot be used: " + message);
}

}  // namespace heddle::gateway
