#include "api/responses.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;

const AnswerHead kChatHead{.kind = AnswerKind::kChat,
                           .id = "chatcmpl-1",
                           .created = 7,
                           .model = "a/b:c",
                           .fingerprint = "fp"};

TEST(Answer, AChatHasMessages) {
  const json answer = json::parse(
      answer_json(kChatHead,
                  {{.index = 0, .text = "one \"two\"\n", .finish = spec::FinishReason::kStop},
                   {.index = 1, .text = "", .finish = spec::FinishReason::kLength}},
                  {.prompt_tokens = 3, .completion_tokens = 4}));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["id"], "chatcmpl-1");
  EXPECT_EQ(answer["created"], 7);
  EXPECT_EQ(answer["model"], "a/b:c");
  EXPECT_EQ(answer["system_fingerprint"], "fp");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "one \"two\"\n");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["choices"][1]["index"], 1);
  EXPECT_EQ(answer["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["total_tokens"], 7);
  EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST(Answer, ACompletionHasTexts) {
  AnswerHead head = kChatHead;
  head.kind = AnswerKind::kCompletion;
  const json answer = json::parse(answer_json(head, {{.text = "x"}}, {}));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "x");
  EXPECT_TRUE(answer["choices"][0]["logprobs"].is_null());
}

TEST(Chunks, OfAChat) {
  const ChunkWriter writer(kChatHead, /*with_usage=*/true);
  const json role = json::parse(writer.role(2));
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["choices"][0]["index"], 2);
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(role["usage"].is_null());
  const json text = json::parse(writer.text({.index = 1, .text = "hi"}));
  EXPECT_EQ(text["choices"][0]["delta"]["content"], "hi");
  EXPECT_TRUE(text["choices"][0]["finish_reason"].is_null());
  const json last = json::parse(writer.text({.finish = spec::FinishReason::kLength}));
  EXPECT_EQ(last["choices"][0]["delta"], json::object());
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  const json usage = json::parse(writer.usage({.prompt_tokens = 1, .completion_tokens = 2}));
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 3);
  EXPECT_EQ(usage["id"], "chatcmpl-1");
}

TEST(Chunks, OfACompletionWithoutUsage) {
  AnswerHead head = kChatHead;
  head.kind = AnswerKind::kCompletion;
  const json chunk = json::parse(ChunkWriter(head, /*with_usage=*/false).text({.text = "x"}));
  EXPECT_EQ(chunk["object"], "text_completion");
  EXPECT_EQ(chunk["choices"][0]["text"], "x");
  EXPECT_FALSE(chunk.contains("usage"));
}

TEST(Models, HaveOpenAisFourMembersAndAStatus) {
  const json list = json::parse(model_list_json(
      {{.id = "a",
        .created = 5,
        .aliases = {"b"},
        .state = "loading",
        .residency = "loading",
        .device = "cpu0",
        .progress = 0.5,
        .fetch =
            FetchObject{
                .from = "s3://b/a", .bytes = 10, .total_bytes = 40, .bytes_per_second = 2.5},
        .context_length = 128,
        .slo_ttft = std::chrono::seconds(2),
        .slo_tpot = std::chrono::microseconds(1500)},
       {.id = "c",
        .state = "unloaded",
        .residency = "absent",
        .failure = "no such file",
        .metadata = R"({"port":5800})"}}));
  EXPECT_EQ(list["object"], "list");
  const json& loading = list["data"][0];
  EXPECT_EQ(loading["object"], "model");
  EXPECT_EQ(loading["owned_by"], "heddle");
  EXPECT_EQ(loading["status"]["value"], "loading");
  EXPECT_EQ(loading["status"]["progress"], 0.5);
  EXPECT_EQ(
      loading["status"]["fetch"],
      (json{{"from", "s3://b/a"}, {"bytes", 10}, {"total_bytes", 40}, {"bytes_per_second", 2.5}}));
  EXPECT_FALSE(list["data"][1]["status"].contains("fetch"));
  EXPECT_EQ(loading["context_length"], 128);
  EXPECT_EQ(loading["slo"]["ttft_ms"], 2000.0);
  EXPECT_EQ(loading["slo"]["tpot_ms"], 1.5);
  EXPECT_FALSE(list["data"][1].contains("slo"));
  EXPECT_FALSE(loading.contains("meta"));
  EXPECT_EQ(list["data"][1]["meta"]["llamaswap"]["port"], 5800);
  EXPECT_EQ(list["data"][1]["status"]["failed"], true);
  EXPECT_EQ(list["data"][1]["status"]["error"], "no such file");
}

TEST(Tokenize, HasVllmsShape) {
  const json answer = json::parse(tokenize_json({1, 2}, 64, {}));
  EXPECT_EQ(answer["count"], 2);
  EXPECT_EQ(answer["max_model_len"], 64);
  EXPECT_EQ(answer["tokens"], json::array({1, 2}));
  EXPECT_TRUE(answer["token_strs"].is_null());
  EXPECT_EQ(json::parse(tokenize_json({1}, 64, {"x"}))["token_strs"], json::array({"x"}));
  EXPECT_EQ(json::parse(detokenize_json("\xff"))["prompt"], "\xef\xbf\xbd");
}

}  // namespace
}  // namespace heddle::api
