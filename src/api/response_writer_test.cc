#include "api/response_writer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;
using spec::FinishReason;

const AnswerHead kHead{.id = "resp_7f", .created = 5, .model = "m"};
const Usage kUsage{.prompt_tokens = 3, .completion_tokens = 4, .reasoning_tokens = 1};

std::unique_ptr<AnswerWriter> writer_of_a_response() {
  return response_writer(kHead,
                         {.settings = R"("store":false)", .custom_tools = {"patch"}},
                         {.temperature = 0.7F, .top_p = 0.9F, .frequency_penalty = -1.5F},
                         [] { return 8; });
}

/// The data of the events; that each is named as it says and numbered is checked.
std::vector<json> data_of(const std::string& events, std::int64_t first = 0) {
  std::vector<json> all;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = events.find("\n\n", at);
    const std::size_t data = events.find("\ndata: ", at);
    all.push_back(json::parse(events.substr(data + 7, end - data - 7)));
    EXPECT_EQ(events.substr(at, data - at), "event: " + all.back()["type"].get<std::string>());
    EXPECT_EQ(all.back()["sequence_number"], first + std::ssize(all) - 1);
    at = end + 2;
  }
  return all;
}

std::vector<std::string> types_of(const std::vector<json>& events) {
  std::vector<std::string> types;
  for (const json& event : events) {
    types.push_back(event["type"].get<std::string>().substr(sizeof "response." - 1));
  }
  return types;
}

TEST(ResponseWriter, AWholeResponseListsThoughtMessageAndCalls) {
  const auto writer = writer_of_a_response();
  const json response = json::parse(
      writer->whole({{.reasoning = "hm",
                      .text = "yes",
                      .calls = {{.id = "call_1", .name = "f", .arguments = R"({"a":1})"}},
                      .finish = FinishReason::kStop,
                      .called = true}},
                    kUsage));
  EXPECT_EQ(response["id"], "resp_7f");
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(response["created_at"], 5);
  EXPECT_EQ(response["completed_at"], 8);
  EXPECT_EQ(response["temperature"], 0.7);
  EXPECT_EQ(response["top_p"], 0.9);
  EXPECT_EQ(response["presence_penalty"], 0);
  EXPECT_EQ(response["frequency_penalty"], -1.5);
  EXPECT_TRUE(response["incomplete_details"].is_null());
  ASSERT_EQ(response["output"].size(), 3U);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(response["output"][0]["type"], "reasoning");
  EXPECT_EQ(response["output"][1]["content"][0]["text"], "yes");
  EXPECT_EQ(response["output"][1]["status"], "completed");
  EXPECT_EQ(response["output"][2]["call_id"], "call_1");
  EXPECT_EQ(response["output"][2]["arguments"], R"({"a":1})");
  EXPECT_EQ(response["usage"]["input_tokens"], 3);
  EXPECT_EQ(response["usage"]["output_tokens_details"]["reasoning_tokens"], 1);
  EXPECT_EQ(response["usage"]["total_tokens"], 7);
}

TEST(ResponseWriter, AStreamTellsHowItGrows) {
  const auto writer = writer_of_a_response();
  std::string events = writer->begin();
  events += writer->news({.reasoning = "h"});
  events += writer->news({.reasoning = "m", .text = "ye"});
  events += writer->news({});
  events += writer->news({.text = "s"});
  events += writer->news(
      {.calls = {{.id = "call_1", .name = "f", .arguments = "{}"}}, .finish = FinishReason::kStop});
  events += writer->end(kUsage);
  const std::vector<json> all = data_of(events);
  EXPECT_EQ(types_of(all),
            (std::vector<std::string>{"created",
                                      "in_progress",
                                      "output_item.added",
                                      "content_part.added",
                                      "reasoning_text.delta",
                                      "reasoning_text.delta",
                                      "reasoning_text.done",
                                      "content_part.done",
                                      "output_item.done",
                                      "output_item.added",
                                      "content_part.added",
                                      "output_text.delta",
                                      "output_text.delta",
                                      "output_text.done",
                                      "content_part.done",
                                      "output_item.done",
                                      "output_item.added",
                                      "function_call_arguments.delta",
                                      "function_call_arguments.done",
                                      "output_item.done",
                                      "completed"}));
  EXPECT_EQ(all[0]["response"]["status"], "in_progress");
  EXPECT_EQ(all[6]["text"], "hm");
  EXPECT_EQ(all[9]["item"]["content"], json::array()) << "it has just begun";
  EXPECT_EQ(all[11]["delta"], "ye");
  EXPECT_EQ(all[11]["logprobs"], json::array());
  EXPECT_EQ(all[13]["text"], "yes");
  EXPECT_EQ(all[13]["item_id"], all[9]["item"]["id"]);
  EXPECT_EQ(all[13]["output_index"], 1);
  EXPECT_EQ(all[16]["item"]["arguments"], "");
  EXPECT_EQ(all[18]["arguments"], "{}");
  EXPECT_FALSE(all[18].contains("content_index"));
  EXPECT_EQ(all[20]["response"]["output"].size(), 3U);
  EXPECT_EQ(all[20]["response"]["output"][1], all[15]["item"]);
}

TEST(ResponseWriter, ACallMayComeInPieces) {
  const auto writer = writer_of_a_response();
  std::string events = writer->news(
      {.calls = {{.id = "call_1", .name = "f", .arguments = "{\"a\"", .whole = false}}});
  events += writer->news({.calls = {{.arguments = ":1}"}}});
  events += writer->news({.finish = FinishReason::kStop});
  events += writer->end(kUsage);
  const std::vector<json> all = data_of(events);
  EXPECT_EQ(types_of(all),
            (std::vector<std::string>{"output_item.added",
                                      "function_call_arguments.delta",
                                      "function_call_arguments.delta",
                                      "function_call_arguments.done",
                                      "output_item.done",
                                      "completed"}));
  EXPECT_EQ(all[3]["arguments"], R"({"a":1})");
  EXPECT_EQ(all[4]["item"]["status"], "completed");
}

TEST(ResponseWriter, TheInputOfACustomToolMayComeInPieces) {
  const auto writer = writer_of_a_response();
  std::string events = writer->news(
      {.calls = {{.id = "call_1", .name = "patch", .arguments = "{", .whole = false}}});
  events += writer->news({.calls = {{.arguments = R"("input":"a\)", .whole = false}}});
  events += writer->news({.calls = {{.arguments = "nb\"}"}}});
  events += writer->news({.finish = FinishReason::kStop});
  const std::vector<json> all = data_of(events);
  EXPECT_EQ(types_of(all),
            (std::vector<std::string>{"output_item.added",
                                      "custom_tool_call_input.delta",
                                      "custom_tool_call_input.delta",
                                      "custom_tool_call_input.done",
                                      "output_item.done"}));
  EXPECT_EQ(all[1]["delta"], "a");
  EXPECT_EQ(all[2]["delta"], "\nb");
  EXPECT_EQ(all[3]["input"], "a\nb");
  EXPECT_EQ(all[4]["item"]["status"], "completed");
}

TEST(ResponseWriter, WhatALimitCutOffIsIncomplete) {
  const auto writer = writer_of_a_response();
  const json response =
      json::parse(writer->whole({{.text = "ye", .finish = FinishReason::kLength}}, kUsage));
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_TRUE(response["completed_at"].is_null());
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
  EXPECT_EQ(types_of(data_of(writer->end(kUsage), 6)).back(), "incomplete");
}

TEST(ResponseWriter, AnEmptyAnswerIsAnEmptyMessage) {
  const auto writer = writer_of_a_response();
  const json response = json::parse(writer->whole({{.finish = FinishReason::kStop}}, kUsage));
  ASSERT_EQ(response["output"].size(), 1U);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], "");
}

TEST(ResponseWriter, LogprobsStandBesideTheirText) {
  const auto writer = writer_of_a_response();
  const std::vector<TokenLogprobs> tokens{
      {.token = {.bytes = "a", .logprob = -0.5F}, .top = {{.bytes = "a", .logprob = -0.5F}}}};
  const std::vector<json> all = data_of(writer->news({.text = "a", .logprobs = tokens}));
  EXPECT_EQ(all[2]["logprobs"][0]["token"], "a");
  EXPECT_EQ(all[2]["logprobs"][0]["top_logprobs"][0]["logprob"], -0.5);
  const json response = json::parse(writer->whole({{.finish = FinishReason::kStop}}, kUsage));
  EXPECT_EQ(response["output"][0]["content"][0]["logprobs"][0]["bytes"], json({97}));
}

TEST(ResponseWriter, AFailureIsTheLastEvent) {
  const auto writer = writer_of_a_response();
  std::string events = writer->begin() + writer->news({.text = "ye"});
  events += writer->fail({.status = 504, .message = "too late"});
  const std::vector<json> all = data_of(events);
  EXPECT_EQ(types_of(all).back(), "failed");
  EXPECT_EQ(all.back()["response"]["status"], "failed");
  EXPECT_EQ(all.back()["response"]["error"],
            json::parse(R"({"code":"server_error","message":"too late"})"));
  EXPECT_EQ(all.back()["response"]["output"][0]["status"], "incomplete");
}

}  // namespace
}  // namespace heddle::api
