#include "bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::bench {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Results two_models() {
  Results results({"a", "b"}, parse_slo("ttft=200ms").value());
  results.add({.model = 0,
               .begun = 1ms,
               .first = 100ms,
               .last = 340ms,
               .ended = 1s,
               .prompt_tokens = 10,
               .completion_tokens = 21},
              {12ms, 190ms});
  results.add({.model = 1, .ended = 2s, .error = "status 500: \"no\""}, {});
  return results;
}

TEST(Report, ATableHasARowForEachModelAndForAll) {
  const auto rows = report_table(two_models());
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_THAT(rows[1],
              ElementsAre("a",
                          "1",
                          "0",
                          "0.50",
                          "5",
                          "10",
                          "100 100 100",
                          "12.0 12.0 12.0",
                          "12.0 190 190",
                          "0.50 (100.0 %)"));
  EXPECT_THAT(rows[2], ElementsAre("b", "1", "1", "0.00", "0", "0", "-", "-", "-", "0.00 (0.0 %)"));
  EXPECT_EQ(rows[3][0], "all");
  EXPECT_EQ(rows[3].back(), "0.50 (50.0 %)");
}

TEST(Report, NotesTellLatenessAndFailures) {
  const std::vector<std::string> notes = report_notes(two_models());
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_THAT(notes[0], HasSubstr("at most 1.00 ms"));
  EXPECT_EQ(notes[1], "1 failed: status 500: \"no\"");
}

TEST(Report, JsonHasAllNumbers) {
  const json report = json::parse(report_json(two_models(), {{"seed", "7"}}));
  EXPECT_EQ(report["circumstances"]["seed"], "7");
  EXPECT_EQ(report["seconds"], 2);
  EXPECT_EQ(report["slo"]["ttft"], 0.2);
  EXPECT_TRUE(report["slo"]["tpot"].is_null());
  EXPECT_EQ(report["all"]["requests"], 2);
  EXPECT_EQ(report["errors"]["status 500: \"no\""], 1);
  EXPECT_NEAR(report["models"][0]["ttft"]["p99"], 0.1, 1e-6);
  EXPECT_NEAR(report["models"][0]["itl"]["max"], 0.19, 1e-6);
  EXPECT_EQ(report["models"][0]["goodput"], 0.5);
  ASSERT_EQ(report["requests"].size(), 2U);
  EXPECT_EQ(report["requests"][0]["completion_tokens"], 21);
  EXPECT_EQ(report["requests"][0]["first"], 0.1);
  EXPECT_EQ(report["requests"][1]["error"], "status 500: \"no\"");
  EXPECT_TRUE(report["requests"][1]["first"].is_null()) << "nothing came";
}

}  // namespace
}  // namespace heddle::bench
