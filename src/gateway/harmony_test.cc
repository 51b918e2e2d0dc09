// Chats with a model whose answers are in harmony's format (text/harmony.h).

#include <gmock/gmock.h>

#include "gateway/test_gateway.h"

namespace heddle::gateway {
namespace {

using nlohmann::json;

/// A template of harmony, small.
constexpr std::string_view kHarmonyConfig =
    R"({"eos_token": "<eos>", "chat_template": "{% for m in messages %}<|start|>{{ m.role }})"
    R"(<|message|>{{ m.content }}<|end|>{% endfor %}{{ tools | length if tools else '' }})"
    R"({{ reasoning_effort or '' }}<|start|>assistant{% if false %}<|channel|>{% endif %}"})";

const std::string kSumTool =
    R"("tools":[{"type":"function","function":{"name":"sum","parameters":{"type":"object"}}}])";

class HarmonyTest : public GatewayTest {
 protected:
  [[nodiscard]] std::string prompt_of(std::size_t request) const {
    std::string text;
    for (const TokenId token : serving.started.at(request)->prompt) {
      text += static_cast<char>(token);
    }
    return text;
  }
};

TEST_F(HarmonyTest, AnAnswerIsThoughtTextAndCalls) {
  model.write("tokenizer_config.json", std::string(kHarmonyConfig));
  serving.reply =
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes";
  start();
  const json message = ask("POST",
                           "/v1/chat/completions",
                           chat_body(R"("reasoning_effort":"low")"))["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["content"], "yes");
  EXPECT_TRUE(prompt_of(0).ends_with("<|end|>low<|start|>assistant"));
  serving.reply = "<|channel|>commentary to=functions.sum <|constrain|>json<|message|>{\"a\": 1}";
  const json called = ask("POST", "/v1/chat/completions", chat_body(kSumTool))["choices"][0];
  EXPECT_EQ(called["finish_reason"], "tool_calls");
  EXPECT_EQ(called["message"]["tool_calls"][0]["function"]["name"], "sum");
}

TEST_F(HarmonyTest, TheCallOfAStreamIsPutTogetherOfItsPieces) {
  model.write("tokenizer_config.json", std::string(kHarmonyConfig));
  serving.reply =
      "<|channel|>commentary to=functions.sum <|constrain|>json<|message|>{\"a\": \"b c\"}";
  start();
  const std::string stream =
      call("POST", "/v1/chat/completions", chat_body(kSumTool + R"(,"stream":true)")).body;
  std::string arguments;
  std::vector<std::string> names;
  for (const std::string& event : events_of(stream)) {
    const json chunk = json::parse(event, nullptr, /*allow_exceptions=*/false);
    if (!chunk.is_object() || !chunk["choices"][0]["delta"].contains("tool_calls")) {
      continue;
    }
    for (const json& piece : chunk["choices"][0]["delta"]["tool_calls"]) {
      arguments += piece["function"]["arguments"].get<std::string>();
      if (piece.contains("id")) {
        names.push_back(piece["function"]["name"]);
      }
    }
  }
  EXPECT_EQ(names, std::vector<std::string>{"sum"});
  EXPECT_EQ(arguments, R"({"a":"b c"})");
}

TEST_F(HarmonyTest, AnAnswerThatIsHeldToAFormHasItsHeadInThePrompt) {
  model.write("tokenizer_config.json", std::string(kHarmonyConfig));
  serving.reply = "yes";
  start();
  const json message = ask("POST",
                           "/v1/chat/completions",
                           chat_body(R"("guided_choice":["yes"])"))["choices"][0]["message"];
  EXPECT_EQ(message["content"], "yes");
  EXPECT_TRUE(prompt_of(0).ends_with("<|start|>assistant<|channel|>final<|message|>"));
  EXPECT_EQ(serving.started.at(0)->choices.at(0).grammar.thought, spec::Thought::kNone);
  (void)ask("POST", "/v1/chat/completions", chat_body(kSumTool + R"(,"tool_choice":"required")"));
  EXPECT_TRUE(prompt_of(1).ends_with("<|start|>assistant"))
      << "the grammar of calls has their head";
}

}  // namespace
}  // namespace heddle::gateway
