#include "gateway/request_traces.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::gateway {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

TEST(Stories, AreFoundByEitherIdUntilTheyAreForgotten) {
  RequestTraces traces(2);
  const RequestTraces::Whose all;
  traces.begin({.request_id = "a", .answer_id = "chatcmpl-a"});
  traces.begin({.request_id = "b", .answer_id = "chatcmpl-b"});
  EXPECT_EQ(traces.find("chatcmpl-a", all)->request_id, "a");
  traces.begin({.request_id = "a", .answer_id = "chatcmpl-c"});
  EXPECT_EQ(traces.find("chatcmpl-a", all), nullptr);
  EXPECT_EQ(traces.find("a", all)->answer_id, "chatcmpl-c") << "the newer one with the same id";
  ASSERT_EQ(traces.latest(10, all).size(), 2U);
  EXPECT_EQ(traces.latest(1, all)[0]->answer_id, "chatcmpl-c");
}

// Clients choose their ids, so two may have chosen the same.
TEST(Stories, AreToldToThoseWhoseTheyAre) {
  RequestTraces traces(10);
  traces.begin({.tenant = "1.1", .request_id = "same", .model = "mine"});
  traces.begin({.tenant = "2.2", .request_id = "same", .model = "theirs"});
  traces.begin({.tenant = "2.2", .request_id = "other"});
  EXPECT_EQ(traces.find("same", "1.1")->model, "mine");
  EXPECT_EQ(traces.find("same", "2.2")->model, "theirs");
  EXPECT_EQ(traces.find("other", "1.1"), nullptr);
  ASSERT_EQ(traces.latest(1, "1.1").size(), 1U) << "the newest are another's";
  EXPECT_EQ(traces.latest(1, "1.1")[0]->model, "mine");
  EXPECT_EQ(traces.latest(10, std::nullopt).size(), 3U);
}

TEST(Stories, TellPhasesDeviceAndTokens) {
  core::RequestRecord record{.prompt = {1, 2, 3},
                             .generated = {{4, 5}, {6}},
                             .finished = {spec::FinishReason::kStop, spec::FinishReason::kNone},
                             .restarts = 1};
  record.times = {.arrived = Instant(10ms),
                  .load_began = Instant(11ms),
                  .dispatched = Instant(15ms),
                  .first_token = Instant(17ms),
                  .finished = Instant(27ms)};
  const RequestTrace trace{.request_id = "a",
                           .trace_id = "4bf92f3577b34da6a3ce929d0e0e4736",
                           .model = "m",
                           .status = 200,
                           .parts = {tell(record, "cpu0")}};
  const json told = json::parse(trace_json(trace));
  EXPECT_EQ(told["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(told["running"], false);
  EXPECT_TRUE(told["error"].is_null());
  const json& part = told["parts"][0];
  EXPECT_EQ(part["phases"]["queue_ms"], 1.0);
  EXPECT_EQ(part["phases"]["load_ms"], 4.0);
  EXPECT_EQ(part["phases"]["prefill_ms"], 2.0);
  EXPECT_EQ(part["phases"]["decode_ms"], 10.0);
  EXPECT_EQ(part["phases"]["total_ms"], 17.0);
  EXPECT_EQ(part["device"], "cpu0");
  EXPECT_EQ(part["restarts"], 1);
  EXPECT_EQ(part["prompt_tokens"], 3);
  EXPECT_EQ(part["completion_tokens"], 3);
  EXPECT_EQ(part["finish_reasons"], json::array({"stop", "none"}));
}

TEST(Stories, WhatHasNotHappenedIsNull) {
  core::RequestRecord record;
  record.times.arrived = Instant(1ms);
  const RequestTrace trace{.parts = {tell(record, "")}};
  const json told = json::parse(trace_json(trace));
  EXPECT_EQ(told["running"], true);
  EXPECT_TRUE(told["trace_id"].is_null());
  EXPECT_TRUE(told["parts"][0]["phases"]["queue_ms"].is_null());
  EXPECT_TRUE(told["parts"][0]["phases"]["load_ms"].is_null());
}

}  // namespace
}  // namespace heddle::gateway
