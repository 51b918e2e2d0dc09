#include "sim/log_trace.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kNoon = 1'795'780'800'000;  // [ms since 1970]

/// As heddle writes it.
std::string ended(log::Format format,
                  std::int64_t at_ms,
                  std::string_view model,
                  std::int64_t prompt,
                  std::int64_t answer,
                  double took_ms) {
  return log::format_line(log::Level::kInfo,
                          "request ended",
                          {{"request", "req-1"},
                           {"model", model},
                           {"client", "a b\"=c"},
                           {"status", 200},
                           {"prompt_tokens", prompt},
                           {"cached_tokens", 0},
                           {"completion_tokens", answer},
                           {"ms", took_ms},
                           {"error", ""}},
                          {.format = format},
                          at_ms);
}

class LogTraceTest : public testing::TestWithParam<log::Format> {};

TEST_P(LogTraceTest, RequestsComeByTheirArrivals) {
  LogTrace trace;
  const std::string other =
      log::format_line(log::Level::kInfo, "model loaded", {{"ms", 3}}, {.format = GetParam()}, 1);
  EXPECT_TRUE(LogTrace::is(other));
  for (const std::string& line : {other,
                                  ended(GetParam(), kNoon + 5000, "short", 10, 1, 500.25),
                                  ended(GetParam(), kNoon + 9000, "org/long one", 20, 300, 8000),
                                  ended(GetParam(), kNoon + 9500, "short", 0, 0, 5),
                                  std::string("Server listening on port 8080"),
                                  std::string("")}) {
    const Result<void> added = trace.add(line);
    EXPECT_TRUE(added) << line;
  }
  const std::vector<OtlpRow> rows = trace.rows();
  ASSERT_EQ(rows.size(), 2U) << "one had no token";
  EXPECT_EQ(rows[0].model, "org/long one");
  EXPECT_EQ(rows[0].arrival, Instant{});
  EXPECT_EQ(rows[0].input_tokens, 20);
  EXPECT_EQ(rows[0].output_tokens, 300);
  EXPECT_EQ(rows[1].model, "short");
  EXPECT_EQ(rows[1].arrival, Instant(3499750us));
}

TEST_P(LogTraceTest, WhatLacksSomethingIsSaid) {
  LogTrace trace;
  const std::string line = log::format_line(
      log::Level::kInfo, "request ended", {{"model", "m"}}, {.format = GetParam()}, kNoon);
  const Result<void> added = trace.add(line);
  ASSERT_FALSE(added);
  EXPECT_NE(added.error().message.find("want time, model"), std::string::npos);
  EXPECT_TRUE(trace.rows().empty());
}

TEST_P(LogTraceTest, ALineThatMerelySpeaksOfItIsPassedOver) {
  LogTrace trace;
  EXPECT_TRUE(trace.add(log::format_line(log::Level::kWarning,
                                         "worker said",
                                         {{"line", "request ended"}},
                                         {.format = GetParam()},
                                         kNoon)));
  EXPECT_TRUE(trace.rows().empty());
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         LogTraceTest,
                         testing::Values(log::Format::kText, log::Format::kJson));

TEST(LogTrace, OtherFilesAreNone) {
  for (const char* line : {"arrival_s,model,input_tokens,output_tokens",
                           "2023-11-16 18:17:03.979,1,2",
                           R"({"timestamp": 0, "input_length": 1, "output_length": 2})",
                           R"({"resourceSpans":[]})",
                           "12.5,chat,3,4",
                           ""}) {
    EXPECT_FALSE(LogTrace::is(line)) << line;
  }
}

}  // namespace
}  // namespace heddle::sim
