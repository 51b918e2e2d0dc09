#include "gateway/tool_grammar.h"

#include <gtest/gtest.h>

#include "text/grammar.h"
#include "text/test_model_directory.h"

namespace heddle::gateway {
namespace {

using text::ToolFormat;

class ToolGrammarTest : public testing::Test {
 protected:
  ToolGrammarTest() {
    use.list = {{.name = "sum",
                 .parameters = R"({"$defs":{"n":{"type":"integer"}},"type":"object","properties":
                     {"a":{"$ref":"#/$defs/n"}},"required":["a"],"additionalProperties":false})"},
                {.name = "now", .parameters = R"({"type":"object","additionalProperties":false})"}};
    use.choice = api::ToolChoice::kRequired;
  }

  /// Whether an answer conforms, and is complete.
  [[nodiscard]] bool conforms(ToolFormat format, const std::string& answer) const {
    const auto vocabulary = text::GrammarVocabulary::make(*model, 258).value();
    const auto grammar = tool_grammar(format, use, *model->tokenizer(), alternative);
    const auto matcher = text::GrammarMatcher::open(vocabulary, grammar);
    EXPECT_TRUE(matcher) << matcher.error().message << grammar.text;
    for (const char c : answer) {
      const TokenId token = static_cast<unsigned char>(c);
      if (!(*matcher)->accept({&token, 1})) {
        return false;
      }
    }
    const TokenId end = 256;
    return (*matcher)->ended() || (*matcher)->accept({&end, 1});
  }

  text::ByteModelDirectory directory{};
  std::shared_ptr<const text::TextModel> model = text::TextModel::open(directory.path()).value();
  api::ToolUse use{};
  spec::Grammar alternative{};
};

TEST(GrammarFault, NamesTheFieldAndShowsNoGrammarOfOurOwn) {
  const std::string message =
      "at 5(13): failed to compile JSON schema: Invalid type: nonsense\n   4 | call1: \"x\"\n"
      "   5 | arguments1: %json {\"x-guidance\":{}}\n                   ^\n";
  const spec::Grammar made{.kind = spec::GrammarKind::kLark, .text = "start: calls\n"};
  const api::ApiError tools = grammar_fault("tools", made, message);
  EXPECT_EQ(tools.param, "tools[1].function.parameters");
  EXPECT_EQ(tools.message,
            "tools[1].function.parameters: the schema cannot be used: Invalid type: nonsense");
  const api::ApiError own = grammar_fault("response_format", made, message);
  EXPECT_EQ(own.message, "response_format: the grammar cannot be used: " + message)
      << "who wrote it wants to see where";
  const spec::Grammar tokens{.kind = spec::GrammarKind::kLark, .text = "start: <[9]>+\n"};
  EXPECT_EQ(grammar_fault("response_format",
                          tokens,
                          "at 1(8): Token range end too large: 9\n   1 | start: <[9]>+\n")
                .message,
            "allowed_token_ids: cannot be used with this model: Token range end too large: 9");
  EXPECT_EQ(grammar_fault("tools", made, "too large").message,
            "tools: the grammar cannot be used: too large");
}

const std::string kSum = R"({"name": "sum", "arguments": {"a": 12}})";
const std::string kNow = R"({"name": "now", "arguments": {}})";

TEST_F(ToolGrammarTest, CallsAreSpelledAsTheModelDoes) {
  EXPECT_TRUE(conforms(ToolFormat::kHermes, "<tool_call>\n" + kSum + "\n</tool_call>"));
  EXPECT_TRUE(conforms(ToolFormat::kLlama3, R"({"name": "sum", "parameters": {"a": 12}})"));
  EXPECT_TRUE(conforms(ToolFormat::kMistral, "[TOOL_CALLS][" + kNow + "]"));
  const std::string head = "<|channel|>commentary to=functions.";
  EXPECT_TRUE(
      conforms(ToolFormat::kHarmony, head + R"(sum <|constrain|>json<|message|>{"a": 12})"));
  EXPECT_FALSE(
      conforms(ToolFormat::kHarmony, head + R"(now <|constrain|>json<|message|>{"a": 12})"));
  EXPECT_FALSE(conforms(ToolFormat::kHermes, "Hello"));
  EXPECT_FALSE(conforms(ToolFormat::kMistral, R"([TOOL_CALLS][{"name": "other")"));
  EXPECT_FALSE(conforms(ToolFormat::kMistral, R"([TOOL_CALLS][{"name": "sum", "arguments": {"b")"));
}

TEST_F(ToolGrammarTest, ArgumentsAreWrittenInOneWay) {
  for (const std::string arguments : {R"({"a":12})", R"({ "a": 12})", R"({"a": 12 })"}) {
    const std::string call = R"([TOOL_CALLS][{"name": "sum", "arguments": )" + arguments + "}]";
    EXPECT_FALSE(conforms(ToolFormat::kMistral, call)) << call;
  }
}

TEST_F(ToolGrammarTest, SeveralCallsOnlyWhereTheyMayBeParallel) {
  const std::string both = "[TOOL_CALLS][" + kSum + ", " + kNow + "]";
  EXPECT_TRUE(conforms(ToolFormat::kMistral, both));
  use.parallel = false;
  EXPECT_FALSE(conforms(ToolFormat::kMistral, both));
}

TEST_F(ToolGrammarTest, ANamedToolIsTheOnlyOne) {
  use.choice = api::ToolChoice::kNamed;
  use.named = "now";
  EXPECT_TRUE(conforms(ToolFormat::kMistral, "[TOOL_CALLS][" + kNow + "]"));
  EXPECT_FALSE(conforms(ToolFormat::kMistral, "[TOOL_CALLS][" + kSum + "]"));
}

TEST_F(ToolGrammarTest, AnAnswerOfAFormatMayStandInstead) {
  use.choice = api::ToolChoice::kAuto;
  alternative = {.kind = spec::GrammarKind::kJsonSchema,
                 .text = R"({"type":"object","properties":{"ok":{"type":"boolean"}},)"
                         R"("required":["ok"],"additionalProperties":false})"};
  for (const ToolFormat format : {ToolFormat::kHermes, ToolFormat::kMistral}) {
    EXPECT_TRUE(can_stand_beside_calls(alternative, format));
    EXPECT_TRUE(conforms(format, R"({"ok": true})"));
    EXPECT_FALSE(conforms(format, R"({"ok": 1})"));
    EXPECT_FALSE(conforms(format, "yes"));
  }
  EXPECT_TRUE(conforms(ToolFormat::kHermes, "<tool_call>\n" + kSum + "\n</tool_call>"));
  EXPECT_FALSE(can_stand_beside_calls(alternative, ToolFormat::kLlama3));
  EXPECT_FALSE(can_stand_beside_calls(alternative, ToolFormat::kNone));
  const spec::Grammar regex{.kind = spec::GrammarKind::kRegex, .text = "a"};
  EXPECT_FALSE(can_stand_beside_calls(regex, ToolFormat::kHermes));
  const spec::Grammar anything{.kind = spec::GrammarKind::kJsonSchema, .text = "true"};
  EXPECT_FALSE(can_stand_beside_calls(anything, ToolFormat::kHermes));
}

TEST_F(ToolGrammarTest, TheGenericFormIsOneCallOrAListOfThem) {
  EXPECT_TRUE(conforms(ToolFormat::kGeneric, "[" + kSum + ", " + kNow + "]"));
  EXPECT_TRUE(conforms(ToolFormat::kGeneric, "[" + kNow + "]"));
  EXPECT_FALSE(conforms(ToolFormat::kGeneric, "[]"));
  EXPECT_FALSE(conforms(ToolFormat::kGeneric, kNow));
  use.parallel = false;
  EXPECT_TRUE(conforms(ToolFormat::kGeneric, kNow));
  EXPECT_FALSE(conforms(ToolFormat::kGeneric, "[" + kNow + "]"));
}

}  // namespace
}  // namespace heddle::gateway
