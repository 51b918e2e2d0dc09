#include "text/tool_instructions.h"

#include <gtest/gtest.h>

#include "text/test_model_directory.h"

namespace heddle::text {
namespace {

constexpr std::string_view kTools =
    R"([{"type":"function","function":{"name":"sum","description":"adds","parameters":{}}},)"
    R"({"type":"function","function":{"name":"now"}}])";

TEST(ToolInstructions, NameTheToolsAndTheForm) {
  EXPECT_EQ(tool_instructions(kTools, "", /*several=*/true),
            "Tools:\n{\"name\":\"sum\",\"description\":\"adds\",\"parameters\":{}}\n"
            "{\"name\":\"now\"}\n"
            "Answer with calls of them and nothing else: "
            "[{\"name\": <name of a tool>, \"arguments\": <object>}, ...]");
  EXPECT_EQ(tool_instructions(kTools, "now", /*several=*/false),
            "Tools:\n{\"name\":\"now\"}\n"
            "Answer with one call of them and nothing else: "
            "{\"name\": <name of a tool>, \"arguments\": <object>}");
}

/// What a model with this template reads.
std::string told(const std::string& jinja,
                 std::string_view messages,
                 std::string_view instructions = "Call.") {
  const ByteModelDirectory directory;
  directory.write("chat_template.jinja", jinja);
  const auto model = TextModel::open(directory.path()).value();
  const auto prompt = render_plainly(*model, Chat{.messages = messages}, instructions);
  return prompt ? *prompt : "refused: " + prompt.error().message;
}

constexpr const char* kAll = "{% for m in messages %}[{{m.role}}:{{m.content}}]{% endfor %}";
constexpr std::string_view kTwoUsers =
    R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
    R"({"role":"user","content":"c"}])";

TEST(RenderPlainly, TellsThemAsSystemMessage) {
  EXPECT_EQ(told(kAll, kTwoUsers), "[system:Call.][user:a][assistant:b][user:c]");
  EXPECT_EQ(told(kAll, R"([{"role":"system","content":"Be kind."},{"role":"user","content":"a"}])"),
            "[system:Be kind.\n\nCall.][user:a]");
}

TEST(RenderPlainly, TellsThemTheUserWhereTheTemplateRefusesSystemMessages) {
  const std::string refuses =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}";
  EXPECT_EQ(told(refuses + kAll, kTwoUsers), "[user:Call.\n\na][assistant:b][user:c]");
}

TEST(RenderPlainly, RespectsATemplateThatLeavesSystemMessagesOut) {
  const std::string skips =
      "{% for m in messages if m.role != 'system' %}[{{m.content}}]{% endfor %}";
  EXPECT_EQ(told(skips, kTwoUsers), "[a][b][c]");
}

TEST(RenderPlainly, CallsAndResultsAreText) {
  constexpr std::string_view kTurns =
      R"([{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[)"
      R"({"id":"1","type":"function","function":{"name":"sum","arguments":{"x":1}}},)"
      R"({"id":"2","type":"function","function":{"name":"now"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"3"},)"
      R"({"role":"tool","tool_call_id":"2","content":"noon"},{"role":"user","content":"So?"},)"
      R"({"role":"assistant","content":"b"}])";
  EXPECT_EQ(told(kAll, kTurns, ""),
            R"([user:a][assistant:[{"name":"sum","arguments":{"x":1}},)"
            R"({"name":"now","arguments":{}}]])"
            "[user:Result of sum: 3\nResult of now: noon\nSo?][assistant:b]");
}

TEST(RenderPlainly, WithoutToolsNothingIsDifferent) {
  EXPECT_EQ(told(kAll, kTwoUsers, ""), "[user:a][assistant:b][user:c]");
  EXPECT_EQ(
      told(kAll, R"([{"role":"user","content":"a \"tool\""},{"role":"user","content":"b"}])", ""),
      "[user:a \"tool\"][user:b]");
  EXPECT_EQ(told(kAll, R"([{"role":"assistant","content":"b","tool_calls":[]}])", ""),
            "[assistant:b]");
}

TEST(RenderPlainly, WhatTheTemplateRefusesAnywayIsRefused) {
  EXPECT_TRUE(told("{{ raise_exception('never') }}", kTwoUsers).starts_with("refused: "));
}

}  // namespace
}  // namespace heddle::text
