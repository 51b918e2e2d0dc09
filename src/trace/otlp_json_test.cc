#include "trace/otlp_json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::trace {
namespace {

using nlohmann::json;

TEST(OtlpJson, HasASpanAsTheProtocolSpellsIt) {
  const Span span{.name = "POST /v1/x",
                  .kind = SpanKind::kServer,
                  .trace = {.high = 1, .low = 2},
                  .id = SpanId(3),
                  .parent = SpanId(4),
                  .remote_parent = true,
                  .begin_ns = 1'700'000'000'000'000'001,
                  .end_ns = 1'700'000'000'000'000'009,
                  .attributes = {{"text", std::string("a\"b")},
                                 {"count", std::int64_t{5}},
                                 {"flag", true},
                                 {"list", std::vector<std::string>{"stop", "length"}}},
                  .events = {{.name = "lost", .at_ns = 7, .attributes = {{"n", std::int64_t{1}}}}},
                  .failed = true,
                  .failure = "why"};
  const json body = json::parse(
      spans_json({{"service.name", std::string("heddle")}}, "1.2", std::span(&span, 1)));
  const json expected = json::parse(R"({"resourceSpans": [{
    "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "heddle"}}]},
    "scopeSpans": [{"scope": {"name": "heddle", "version": "1.2"}, "spans": [{
      "traceId": "00000000000000010000000000000002", "spanId": "0000000000000003",
      "parentSpanId": "0000000000000004", "flags": 769, "name": "POST /v1/x", "kind": 2,
      "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": "1700000000000000009",
      "attributes": [
        {"key": "text", "value": {"stringValue": "a\"b"}},
        {"key": "count", "value": {"intValue": "5"}},
        {"key": "flag", "value": {"boolValue": true}},
        {"key": "list", "value": {"arrayValue": {"values": [
          {"stringValue": "stop"}, {"stringValue": "length"}]}}}],
      "events": [{"name": "lost", "timeUnixNano": "7",
                  "attributes": [{"key": "n", "value": {"intValue": "1"}}]}],
      "status": {"code": 2, "message": "why"}}]}]}]})");
  EXPECT_EQ(body, expected);
}

TEST(OtlpJson, LeavesOutWhatASpanHasNot) {
  const Span span{.name = "queue", .trace = {.high = 1, .low = 2}, .id = SpanId(3)};
  const json body = json::parse(spans_json({}, "", std::span(&span, 1)));
  const json& told = body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
  EXPECT_FALSE(told.contains("parentSpanId"));
  EXPECT_FALSE(told.contains("events"));
  EXPECT_FALSE(told.contains("status"));
  EXPECT_EQ(told["flags"], 257);
}

// Clients write some of what is told, and may write any bytes.
TEST(OtlpJson, IsUtf8WhateverClientsSend) {
  const Span span{.name = "a\xff\xc3", .attributes = {{"k", std::string("\x80")}}};
  const json body = json::parse(spans_json({}, "", std::span(&span, 1)));
  EXPECT_EQ(body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"], "a\uFFFD\uFFFD");
}

TEST(OtlpJson, TellsWhatACollectorDidNotTake) {
  const PartialSuccess some =
      read_partial_success(R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}})");
  EXPECT_EQ(some.rejected, 3);
  EXPECT_EQ(some.why, "too old");
  EXPECT_EQ(read_partial_success(R"({"partialSuccess":{"rejectedSpans":2}})").rejected, 2);
  for (const char* none : {"",
                           "{}",
                           "[1]",
                           "not JSON",
                           R"({"partialSuccess":null})",
                           R"({"partialSuccess":{"rejectedSpans":"x","errorMessage":7}})",
                           R"({"partialSuccess":{"rejectedSpans":-1}})",
                           R"({"partialSuccess":{}})"}) {
    EXPECT_EQ(read_partial_success(none).rejected, 0) << none;
    EXPECT_EQ(read_partial_success(none).why, "") << none;
  }
}

}  // namespace
}  // namespace heddle::trace
