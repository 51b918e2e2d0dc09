#include "sim/otlp_trace.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// A line of one span, with further members and attributes.
std::string exported(const std::string& span) {
  return R"({"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{},"spans":[)" + span +
         "]}]}]}";
}

std::string number_of(const std::string& name, const std::string& value) {
  return R"({"key":")" + name + R"(","value":{"intValue":")" + value + R"("}})";
}

std::string text_of(const std::string& name, const std::string& value) {
  return R"({"key":")" + name + R"(","value":{"stringValue":")" + value + R"("}})";
}

std::string request(const std::string& id,
                    const std::string& parent,
                    const std::string& begin_ns,
                    const std::string& attributes) {
  return R"({"traceId":"t","spanId":")" + id + R"(","parentSpanId":")" + parent +
         R"(","startTimeUnixNano":")" + begin_ns + R"(","attributes":[)" + attributes + "]}";
}

const std::string kHeddles = text_of("gen_ai.request.model", "m") + "," +
                             number_of("gen_ai.usage.input_tokens", "10") + "," +
                             number_of("gen_ai.usage.output_tokens", "20");
const std::string kVllms = text_of("gen_ai.response.model", "v") + "," +
                           number_of("gen_ai.usage.prompt_tokens", "3") + "," +
                           number_of("gen_ai.usage.completion_tokens", "4");

TEST(OtlpTrace, RequestsComeByTheirBeginnings) {
  OtlpTrace trace;
  const std::string late = exported(request("b", "", "7000000000", kVllms));
  ASSERT_TRUE(OtlpTrace::is(late));
  ASSERT_TRUE(trace.add(late));
  ASSERT_TRUE(trace.add(exported(request("a", "", "5000000000", kHeddles))));
  const std::vector<OtlpRow> rows = trace.rows();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].model, "m");
  EXPECT_EQ(rows[0].arrival, Instant{});
  EXPECT_EQ(rows[0].input_tokens, 10);
  EXPECT_EQ(rows[0].output_tokens, 20);
  EXPECT_EQ(rows[1].model, "v");
  EXPECT_EQ(rows[1].arrival, Instant(2s));
  EXPECT_EQ(rows[1].output_tokens, 4);
}

TEST(OtlpTrace, AnEnginesSpanBehindTheGatewaysIsTheSameRequest) {
  OtlpTrace trace;
  ASSERT_TRUE(trace.add(exported(request("engine", "forward", "6", kVllms))));
  ASSERT_TRUE(trace.add(exported(request("forward", "gateway", "5", ""))));
  ASSERT_TRUE(trace.add(exported(request("gateway", "client", "4", kHeddles))));
  const std::vector<OtlpRow> rows = trace.rows();
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].model, "m");
}

TEST(OtlpTrace, WhatIsNoRequestIsPassedOver) {
  OtlpTrace trace;
  EXPECT_TRUE(
      trace.add(exported(request("a", "", "1", number_of("gen_ai.usage.input_tokens", "10")))));
  EXPECT_TRUE(trace.add(exported(request("a", "a", "x", kHeddles))));
  EXPECT_TRUE(trace.add(R"({"resourceSpans":[{"scopeSpans":"none"}]})"));
  EXPECT_TRUE(trace.rows().empty());
}

TEST(OtlpTrace, BrokenLinesAreSaid) {
  OtlpTrace trace;
  const auto added = trace.add(R"({"resourceSpans":[)");
  ASSERT_FALSE(added);
  EXPECT_EQ(added.error().code, Code::kCorrupt);
  EXPECT_FALSE(OtlpTrace::is("arrival_s,model"));
  EXPECT_FALSE(OtlpTrace::is(R"({"timestamp":1})"));
}

}  // namespace
}  // namespace heddle::sim
