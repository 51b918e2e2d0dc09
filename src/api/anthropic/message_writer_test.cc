#include "api/anthropic/message_writer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::api {
namespace {

using nlohmann::json;
using spec::FinishReason;

const AnswerHead kMessageHead{.id = "msg_7f", .model = "m"};
const Usage kMessageUsage{
    .prompt_tokens = 10, .completion_tokens = 4, .cached_tokens = 7, .reasoning_tokens = 2};

/// The data of the events; that each is named as it says is checked.
std::vector<json> message_events(const std::string& events) {
  std::vector<json> all;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = events.find("\n\n", at);
    const std::size_t data = events.find("\ndata: ", at);
    all.push_back(json::parse(events.substr(data + 7, end - data - 7)));
    EXPECT_EQ(events.substr(at, data - at), "event: " + all.back()["type"].get<std::string>());
    at = end + 2;
  }
  return all;
}

std::vector<std::string> told(const std::vector<json>& events) {
  std::vector<std::string> all;
  for (const json& event : events) {
    std::string one = event["type"].get<std::string>();
    if (event.contains("index")) {
      one += " " + event["index"].dump();
    }
    all.push_back(one);
  }
  return all;
}

TEST(MessageWriter, AWholeMessageListsItsBlocks) {
  const json message =
      json::parse(message_writer(kMessageHead, 10)
                      ->whole({{.reasoning = "hm",
                                .text = "yes",
                                .calls = {{.id = "call_1", .name = "f", .arguments = R"({"a":1})"}},
                                .finish = FinishReason::kStop,
                                .called = true}},
                              kMessageUsage));
  EXPECT_EQ(message, json::parse(R"({"id":"msg_7f","type":"message","role":"assistant","model":"m",
      "content":[{"type":"thinking","thinking":"hm","signature":""},
                 {"type":"text","text":"yes","citations":null},
                 {"type":"tool_use","id":"call_1","name":"f","input":{"a":1},
                  "caller":{"type":"direct"}}],
      "container":null,"stop_details":null,"stop_reason":"tool_use","stop_sequence":null,
      "usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":7,
               "cache_creation":{"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":0},
               "output_tokens":4,"output_tokens_details":{"thinking_tokens":2},
               "server_tool_use":null,"inference_geo":null,"service_tier":"standard"}})"));
}

TEST(MessageWriter, ACallThatWasCutOffHasNoInput) {
  const json message = json::parse(
      message_writer(kMessageHead, 10)
          ->whole({{.calls = {{.id = "call_1", .name = "f", .arguments = "{", .whole = false}},
                    .finish = FinishReason::kLength}},
                  kMessageUsage));
  EXPECT_EQ(message["content"][0]["input"], json::object());
  EXPECT_EQ(message["stop_reason"], "max_tokens");
}

TEST(MessageWriter, AStreamTellsHowItGrows) {
  const auto writer = message_writer(kMessageHead, 10);
  std::string events = writer->begin();
  events += writer->news({.reasoning = "h"});
  events += writer->news({.reasoning = "m", .text = "ye"});
  events += writer->news({.text = "s"});
  events += writer->news({.calls = {{.id = "call_1", .name = "f", .arguments = R"({"a":1})"}},
                          .finish = FinishReason::kStop,
                          .called = true});
  events += writer->end(kMessageUsage);
  const std::vector<json> all = message_events(events);
  EXPECT_EQ(told(all),
            (std::vector<std::string>{"message_start",
                                      "content_block_start 0",
                                      "content_block_delta 0",
                                      "content_block_delta 0",
                                      "content_block_stop 0",
                                      "content_block_start 1",
                                      "content_block_delta 1",
                                      "content_block_delta 1",
                                      "content_block_stop 1",
                                      "content_block_start 2",
                                      "content_block_delta 2",
                                      "content_block_stop 2",
                                      "message_delta",
                                      "message_stop"}));
  EXPECT_EQ(all[0]["message"]["usage"]["input_tokens"], 10);
  EXPECT_EQ(all[0]["message"]["content"], json::array());
  EXPECT_EQ(all[2]["delta"], json::parse(R"({"type":"thinking_delta","thinking":"h"})"));
  EXPECT_EQ(all[6]["delta"], json::parse(R"({"type":"text_delta","text":"ye"})"));
  EXPECT_EQ(all[9]["content_block"],
            json::parse(R"({"type":"tool_use","id":"call_1","name":"f","input":{},
                            "caller":{"type":"direct"}})"));
  EXPECT_EQ(all[10]["delta"]["partial_json"], R"({"a":1})");
  EXPECT_EQ(all[12]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(all[12]["usage"]["cache_read_input_tokens"], 7);
}

TEST(MessageWriter, ACallMayComeInPieces) {
  const auto writer = message_writer(kMessageHead, 1);
  std::string events = writer->news(
      {.calls = {{.id = "call_1", .name = "f", .arguments = "{\"a\"", .whole = false}}});
  events += writer->news({.calls = {{.arguments = ":1", .whole = false}}});
  events += writer->news({.calls = {{.arguments = "}"}}});
  events += writer->news({.finish = FinishReason::kStop, .called = true});
  const std::vector<json> all = message_events(events);
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0]["type"], "content_block_start");
  EXPECT_EQ(all[0]["content_block"]["input"], json::object());
  std::string arguments;
  for (int i = 1; i < 4; ++i) {
    arguments += all[static_cast<std::size_t>(i)]["delta"]["partial_json"].get<std::string>();
  }
  EXPECT_EQ(arguments, R"({"a":1})");
  EXPECT_EQ(all[4]["type"], "content_block_stop");
}

TEST(MessageWriter, SaysWhyItEnded) {
  const auto ended = [](const Choice& choice) {
    const json message =
        json::parse(message_writer(kMessageHead, 1)->whole({choice}, kMessageUsage));
    return message["stop_reason"].get<std::string>() + " " + message["stop_sequence"].dump();
  };
  EXPECT_EQ(ended({.text = "x", .finish = FinishReason::kStop}), "end_turn null");
  EXPECT_EQ(ended({.text = "x", .finish = FinishReason::kLength}), "max_tokens null");
  EXPECT_EQ(ended({.text = "x", .finish = FinishReason::kStop, .stop = "END"}),
            "stop_sequence \"END\"");
}

TEST(MessageWriter, NoBlockIsBlankUnlessItIsAll) {
  const auto content = [](const Choice& choice) {
    return json::parse(message_writer(kMessageHead, 1)->whole({choice}, kMessageUsage))["content"];
  };
  const json called = content({.text = "\n\n",
                               .calls = {{.id = "1", .name = "f", .arguments = "{}"}},
                               .finish = FinishReason::kStop,
                               .called = true});
  ASSERT_EQ(called.size(), 1U);
  EXPECT_EQ(called[0]["type"], "tool_use");
  EXPECT_EQ(content({.finish = FinishReason::kStop}),
            json::parse(R"([{"type":"text","text":"","citations":null}])"));
  EXPECT_EQ(content({.text = " \n", .finish = FinishReason::kStop}),
            json::parse(R"([{"type":"text","text":" \n","citations":null}])"));
  const auto writer = message_writer(kMessageHead, 1);
  const std::string events = writer->news({.text = "\n"}) + writer->news({.text = "x"});
  EXPECT_EQ(message_events(events).back()["delta"]["text"], "\nx");
}

TEST(MessageWriter, WaitsAndFails) {
  const auto writer = message_writer(kMessageHead, 1);
  EXPECT_EQ(writer->waiting("loading"), ": loading\n\nevent: ping\ndata: {\"type\":\"ping\"}\n\n");
  const std::vector<json> failed = message_events(writer->fail({.status = 503, .message = "gone"}));
  EXPECT_EQ(
      failed[0],
      json::parse(R"({"type":"error","error":{"type":"overloaded_error","message":"gone"}})"));
}

TEST(MessageWriter, CountsTokens) {
  EXPECT_EQ(message_count_json(12), R"({"input_tokens":12})");
}

}  // namespace
}  // namespace heddle::api
