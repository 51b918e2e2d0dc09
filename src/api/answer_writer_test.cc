#include "api/answer_writer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;
using spec::FinishReason;

const AnswerHead kChat{.kind = AnswerKind::kChat, .id = "chatcmpl-1", .model = "m"};
const AnswerHead kCompletion{.kind = AnswerKind::kCompletion, .id = "cmpl-1", .model = "m"};

/// The data of encoded events.
std::vector<std::string> data_of(const std::string& events) {
  std::vector<std::string> data;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = events.find("\n\n", at);
    data.push_back(events.substr(at + 6, end - at - 6));
    at = end + 2;
  }
  return data;
}

TEST(CompletionWriter, AnswersBeginWithTheirOpenings) {
  const auto writer = completion_writer(kCompletion, {"a", "b"}, /*with_usage=*/false);
  const json whole = json::parse(
      writer->whole({{.index = 0, .text = "1"}, {.index = 1, .text = "2"}}, {.prompt_tokens = 3}));
  EXPECT_EQ(whole["choices"][0]["text"], "a1");
  EXPECT_EQ(whole["choices"][1]["text"], "b2");
  EXPECT_EQ(whole["usage"]["prompt_tokens"], 3);
  const std::vector<std::string> events = data_of(writer->begin());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(json::parse(events[1])["choices"][0]["text"], "b");
}

TEST(CompletionWriter, AChatSaysWhoseTurnItIs) {
  const auto writer = completion_writer(kChat, {"", ""}, /*with_usage=*/true);
  const std::vector<std::string> events = data_of(writer->begin());
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(json::parse(events[1])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(json::parse(events[1])["choices"][0]["index"], 1);
}

TEST(CompletionWriter, NothingNewIsNoEvent) {
  const auto writer = completion_writer(kChat, {""}, /*with_usage=*/false);
  EXPECT_EQ(writer->news({}), "");
  EXPECT_NE(writer->news({.text = "x"}), "");
  EXPECT_NE(writer->news({.finish = FinishReason::kStop}), "");
}

TEST(CompletionWriter, TheLastChunkOfAChatBringsNothingElse) {
  const Choice last{.index = 1,
                    .text = "x",
                    .calls = {{.id = "c", .name = "f", .arguments = "{}"}},
                    .finish = FinishReason::kStop,
                    .called = true};
  const std::vector<std::string> events =
      data_of(completion_writer(kChat, {"", ""}, false)->news(last));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["content"], "x");
  EXPECT_TRUE(json::parse(events[0])["choices"][0]["finish_reason"].is_null());
  const json end = json::parse(events[1])["choices"][0];
  EXPECT_EQ(end["index"], 1);
  EXPECT_EQ(end["delta"], json::object());
  EXPECT_EQ(end["finish_reason"], "tool_calls");
  EXPECT_EQ(data_of(completion_writer(kCompletion, {"", ""}, false)->news(last)).size(), 1U);
}

TEST(CompletionWriter, AChatWithoutAnyTextHasAnEmptyOne) {
  const auto writer = completion_writer(kChat, {"", ""}, /*with_usage=*/false);
  const std::vector<std::string> events =
      data_of(writer->news({.index = 1, .finish = FinishReason::kStop}));
  ASSERT_EQ(events.size(), 2U);
  const json silence = json::parse(events[0])["choices"][0];
  EXPECT_EQ(silence["index"], 1);
  EXPECT_EQ(silence["delta"], (json{{"content", ""}}));
  EXPECT_TRUE(silence["finish_reason"].is_null());
  EXPECT_EQ(json::parse(events[1])["choices"][0]["finish_reason"], "stop");
  ASSERT_EQ(data_of(writer->news({.text = "x"})).size(), 1U);
  EXPECT_EQ(data_of(writer->news({.finish = FinishReason::kStop})).size(), 1U);
}

TEST(CompletionWriter, EachStepIsToldWhereThatWasAskedFor) {
  const auto chat = completion_writer(kChat, {""}, /*with_usage=*/false, /*every_step=*/true);
  EXPECT_EQ(json::parse(data_of(chat->news({})).at(0))["choices"][0]["delta"],
            (json{{"content", ""}}));
  EXPECT_EQ(data_of(chat->news({.text = "x"})).size(), 1U);
  EXPECT_EQ(data_of(chat->news({.finish = FinishReason::kLength})).size(), 2U);
  const auto text = completion_writer(kCompletion, {""}, /*with_usage=*/true, /*every_step=*/true);
  const json silence = json::parse(data_of(text->news({})).at(0));
  EXPECT_EQ(silence["choices"][0]["text"], "");
  EXPECT_TRUE(silence["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(silence["usage"].is_null());
  EXPECT_EQ(data_of(text->news({.finish = FinishReason::kLength})).size(), 1U);
}

TEST(CompletionWriter, TheEndHasUsageWhereItWasAskedFor) {
  EXPECT_EQ(data_of(completion_writer(kChat, {""}, false)->end({})),
            std::vector<std::string>{"[DONE]"});
  const std::vector<std::string> events =
      data_of(completion_writer(kChat, {""}, true)->end({.prompt_tokens = 1}));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(json::parse(events[0])["usage"]["total_tokens"], 1);
}

TEST(CompletionWriter, EveryChunkHasTheUsageSoFarWhereItIsCounted) {
  const auto writer = completion_writer(kChat, {""}, true);
  writer->count({.prompt_tokens = 3});
  EXPECT_EQ(json::parse(data_of(writer->begin()).at(0))["usage"]["total_tokens"], 3);
  writer->count({.prompt_tokens = 3, .completion_tokens = 2});
  const json chunk = json::parse(data_of(writer->news({.text = "x"})).at(0));
  EXPECT_EQ(chunk["usage"]["completion_tokens"], 2);
  EXPECT_EQ(chunk["choices"][0]["delta"]["content"], "x");
}

TEST(CompletionWriter, AFailureIsAnEventWithTheError) {
  const std::vector<std::string> events =
      data_of(completion_writer(kChat, {""}, false)->fail({.message = "no"}));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(json::parse(events[0])["error"]["message"], "no");
  EXPECT_EQ(events[1], "[DONE]");
}

}  // namespace
}  // namespace heddle::api
