#include "gateway/tool_grammar.h"

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "spec/json_writer.h"

namespace heddle::gateway {

namespace {

/// A text as a string of the grammar.
std::string literal(std::string_view text) {
  spec::JsonWriter json;
  json.string(text);
  return std::move(json).take();
}

/// A schema of arguments, written as models are trained to: a blank after commas and colons, no
/// other white space. `schema` is an object that is not empty.
std::string json_rule(std::string_view schema) {
  return R"(%json {"x-guidance":{"whitespace_flexible":false,"item_separator":", ",)"
         R"("key_separator":": "},)" +
         std::string(schema.substr(1)) + "\n";
}

/// A marker: the special token that it is, or its text.
std::string marker(std::string_view text, const text::Tokenizer& tokenizer) {
  const std::optional<TokenId> id = tokenizer.token_to_id(text);
  return id && tokenizer.is_special(*id) ? "<[" + std::to_string(*id) + "]>" : literal(text);
}

/// Rules `call`, any of the tools in JSON, and those that it needs.
std::string call_rules(const std::vector<const api::Tool*>& tools, std::string_view arguments_key) {
  std::string calls = "call: ";
  std::string rules;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    spec::JsonWriter name;
    name.string(tools[i]->name);
    const std::string number = std::to_string(i);
    const std::string head =
        "{\"name\": " + name.text() + ", \"" + std::string(arguments_key) + "\": ";
    calls += (i > 0 ? " | call" : "call") + number;
    rules += "call" + number + ": " + literal(head) + " arguments" + number + " \"}\"\n";
    // A grammar of its own for each, so that references within the schema find their root.
    rules += "arguments" + number + ": " + json_rule(tools[i]->parameters);
  }
  return calls + "\n" + rules;
}

}  // namespace

bool can_stand_beside_calls(const spec::Grammar& answer, text::ToolFormat format) {
  // Llama's calls begin as JSON does, and llguidance cannot keep both in view.
  const bool distinct = format == text::ToolFormat::kHermes || format == text::ToolFormat::kMistral;
  return distinct && answer.kind == spec::GrammarKind::kJsonSchema &&
         answer.text.starts_with('{') && answer.text != "{}";
}

spec::Grammar tool_grammar(text::ToolFormat format,
                           const api::ToolUse& use,
                           const text::Tokenizer& tokenizer,
                           const spec::Grammar& answer) {
  HEDDLE_CHECK(format != text::ToolFormat::kNone);
  std::vector<const api::Tool*> tools;
  for (const api::Tool& tool : use.list) {
    if (use.choice != api::ToolChoice::kNamed || tool.name == use.named) {
      tools.push_back(&tool);
    }
  }
  const bool several = use.several();
  std::string lark = "start: calls" + std::string(answer.constrains() ? " | answer" : "") + "\n";
  switch (format) {
    case text::ToolFormat::kNone:
      break;
    case text::ToolFormat::kHermes:
      lark += "calls: one" + std::string(several ? " (\"\\n\" one)*" : "") +
              "\none: " + marker("<tool_call>", tokenizer) + " \"\\n\" call \"\\n\" " +
              marker("</tool_call>", tokenizer) + "\n" + call_rules(tools, "arguments");
      break;
    case text::ToolFormat::kLlama3:
      lark += "calls: call" + std::string(several ? " (\"; \" call)*" : "") + "\n" +
              call_rules(tools, "parameters");
      break;
    case text::ToolFormat::kMistral:
      lark += "calls: " + marker("[TOOL_CALLS]", tokenizer) + " \"[\" call" +
              std::string(several ? " (\", \" call)*" : "") + " \"]\"\n" +
              call_rules(tools, "arguments");
      break;
    case text::ToolFormat::kGeneric:
      lark += "calls: " + std::string(several ? "\"[\" call (\", \" call)* \"]\"" : "call") + "\n" +
              call_rules(tools, "arguments");
      break;
  }
  if (answer.constrains()) {
    lark += "answer: " + json_rule(answer.text);
  }
  return spec::Grammar{.kind = spec::GrammarKind::kLark, .text = std::move(lark)};
}

}  // namespace heddle::gateway
