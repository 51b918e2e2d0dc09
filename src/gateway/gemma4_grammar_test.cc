#include "gateway/gemma4_grammar.h"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gateway/test_gateway.h"
#include "gateway/tool_grammar.h"
#include "text/gemma4.h"
#include "text/grammar.h"
#include "text/test_model_directory.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

class Gemma4GrammarTest : public testing::Test {
 protected:
  /// Whether an answer is whole calls of a tool `f` with arguments of that schema.
  [[nodiscard]] bool conforms(const std::string& schema, const std::string& answer) const {
    api::ToolUse use;
    use.list = {{.name = "f", .parameters = schema}};
    use.choice = api::ToolChoice::kRequired;
    const auto vocabulary = text::GrammarVocabulary::make(*model, 258).value();
    const spec::Grammar grammar = tool_grammar(text::ToolFormat::kGemma4, use, *model->tokenizer());
    const auto matcher = text::GrammarMatcher::open(vocabulary, grammar);
    EXPECT_TRUE(matcher) << matcher.error().message << grammar.text;
    for (const char c : answer) {
      const TokenId token = static_cast<unsigned char>(c);
      if (!matcher || !(*matcher)->accept({&token, 1})) {
        return false;
      }
    }
    const TokenId end = 256;
    return (*matcher)->ended() || (*matcher)->accept({&end, 1});
  }

  [[nodiscard]] bool takes(const std::string& schema, const std::string& arguments) const {
    const bool taken = conforms(schema, "<|tool_call>call:f" + arguments + "<tool_call|>");
    EXPECT_TRUE(!taken || text::gemma4_arguments(arguments)) << arguments;
    return taken;
  }

  text::ByteModelDirectory directory{};
  std::shared_ptr<const text::TextModel> model = text::TextModel::open(directory.path()).value();
};

TEST_F(Gemma4GrammarTest, PropertiesStandInOrderAndWhereTheyMust) {
  const std::string schema = R"({"type":"object","properties":{"b":{"type":"integer"},
      "a":{"type":"string"},"C":{"enum":["x",2,null]}},"required":["b"]})";
  for (const char* arguments : {R"({a:<|"|>it's {1}<|"|>,b:-3,C:<|"|>x<|"|>})",
                                "{b:0,C:2}",
                                "{b:7}",
                                R"({a:<|"|><|"|>,b:1})"}) {
    EXPECT_TRUE(takes(schema, arguments)) << arguments;
  }
  for (const char* arguments :
       {"{}", "{a:1,b:1}", "{b:1,a:<|\"|><|\"|>}", "{b:1.5}", "{b:1,C:3}", "{b:1,}", "{ b:1}"}) {
    EXPECT_FALSE(takes(schema, arguments)) << arguments;
  }
}

TEST_F(Gemma4GrammarTest, ValuesAreOfTheirTypes) {
  const std::string schema = R"({"$defs":{"n":{"type":"object","properties":{
      "next":{"$ref":"#/$defs/n"},"v":{"type":["number","null"]}}}},
      "type":"object","properties":{"list":{"type":"array","items":{"type":"boolean"}},
      "n":{"$ref":"#/$defs/n"},"o":{"type":"object"},
      "p":{"anyOf":[{"const":1},{"type":"null"}]}}})";
  for (const char* arguments : {"{}",
                                "{list:[]}",
                                "{list:[true,false]}",
                                "{n:{next:{next:{v:1e-3}},v:null}}",
                                R"({o:{k:[1,<|"|>s<|"|>,{}],l:null},p:1})"}) {
    EXPECT_TRUE(takes(schema, arguments)) << arguments;
  }
  for (const char* arguments : {"{list:[1]}", "{n:{v:true}}", "{p:2}", "{o:1}", "{q:1}"}) {
    EXPECT_FALSE(takes(schema, arguments)) << arguments;
  }
  EXPECT_TRUE(takes("{\"type\":\"object\"}", "{any:1}"));
  EXPECT_FALSE(takes(R"({"type":"object","additionalProperties":false})", "{any:1}"));
}

TEST(Gemma4Ignores, NamesTheFirstKeywordThatIsNotKept) {
  api::ToolUse use;
  use.list = {{.name = "f", .parameters = R"({"type":"object","properties":{"pattern":
      {"type":"string","description":"a minimum","enum":["x"]}},"required":["pattern"]})"},
              {.name = "g", .parameters = R"({"type":"object","properties":{"a":
      {"type":"array","items":{"anyOf":[{"type":"string","pattern":"a+"}]}}}})"}};
  use.choice = api::ToolChoice::kRequired;
  EXPECT_EQ(gemma4_ignores(use),
            "tools[1].function.parameters: \"pattern\" is not enforced in calls as this model "
            "spells them");
  use.choice = api::ToolChoice::kNamed;
  use.named = "f";
  EXPECT_EQ(gemma4_ignores(use), std::nullopt);
}

TEST_F(Gemma4GrammarTest, CallsFollowEachOther) {
  const std::string call = "<|tool_call>call:f{}<tool_call|>";
  EXPECT_TRUE(conforms("{\"type\":\"object\"}", call + call));
  EXPECT_FALSE(conforms("{\"type\":\"object\"}", call + "\n" + call));
  EXPECT_FALSE(conforms("{\"type\":\"object\"}", "Hello"));
}

/// A template of Gemma 4, small.
constexpr std::string_view kGemma4Config =
    R"({"eos_token": "<eos>", "chat_template": "{% for m in messages %}<|turn>{{ m.role }})"
    R"(\n{{ m.content }}<turn|>\n{% endfor %}{{ tools | length if tools else '' }}<|turn>model\n)"
    R"({% if not enable_thinking %}<|channel>thought\n<channel|>{% endif %})"
    R"({% if false %}<|tool_call>call:<tool_call|>{% endif %}"})";

using Gemma4ChatTest = GatewayTest;

TEST_F(Gemma4ChatTest, AnAnswerIsThoughtTextAndCalls) {
  model.write("tokenizer_config.json", std::string(kGemma4Config));
  serving.reply =
      "<|channel>thought\nhm\n<channel|>yes<|tool_call>call:sum{a:[1,<|\"|>b<|\"|>]}<tool_call|>";
  start();
  const std::string tool =
      R"("tools":[{"type":"function","function":{"name":"sum","parameters":{"type":"object"}}}])";
  const json choice = ask("POST", "/v1/chat/completions", chat_body(tool))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["reasoning_content"], "hm");
  EXPECT_EQ(choice["message"]["content"], "yes");
  const json call = choice["message"]["tool_calls"][0]["function"];
  EXPECT_EQ(call["name"], "sum");
  EXPECT_EQ(call["arguments"], R"({"a":[1,"b"]})");
}

TEST_F(Gemma4ChatTest, WhatIsHeldToAFormMayBeThoughtAboutWhereTheTemplateSaysSo) {
  const std::filesystem::path file = model.directory() / "tokenizer.json";
  json tokenizer = json::parse(std::ifstream(file));
  for (const std::string_view marker : text::kGemma4Thought) {
    json token = tokenizer["added_tokens"][0];
    token["id"] = marker == text::kGemma4Thought[0] ? 257 : 258;
    token["content"] = marker;
    tokenizer["added_tokens"].push_back(token);
  }
  model.write("tokenizer.json", tokenizer.dump());
  json config = json::parse(std::ifstream(model.directory() / "config.json"));
  config["vocab_size"] = 259;
  model.write("config.json", config.dump());
  model.write("tokenizer_config.json", std::string(kGemma4Config));
  serving.reply = "yes";
  start();
  const auto held = [this](const std::string& more) {
    const json answer =
        ask("POST", "/v1/chat/completions", chat_body(R"("guided_choice":["yes"])" + more));
    EXPECT_TRUE(answer.contains("choices")) << answer;
    return serving.started.back()->choices.at(0).grammar.thought;
  };
  EXPECT_EQ(held(""), spec::Thought::kNone);
  EXPECT_EQ(held(R"(,"chat_template_kwargs":{"enable_thinking":true})"), spec::Thought::kMay);
}

TEST_F(Gemma4ChatTest, WithoutTokensOfThoughtsAnAnswerIsHeldFromItsBeginning) {
  model.write("tokenizer_config.json", std::string(kGemma4Config));
  serving.reply = "yes";
  start();
  (void)ask(
      "POST",
      "/v1/chat/completions",
      chat_body(R"("guided_choice":["yes"],"chat_template_kwargs":{"enable_thinking":true})"));
  EXPECT_EQ(serving.started.back()->choices.at(0).grammar.thought, spec::Thought::kNone);
}

}  // namespace
}  // namespace heddle::gateway
