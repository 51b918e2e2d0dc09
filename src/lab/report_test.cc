#include "lab/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/json.h"

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class ReportTest : public testing::Test {
 protected:
  ReportTest()
      : lab_(parse_lab_file(
                 "config:\n"
                 "  devices: [{name: d, memory: 1MiB, page: 64KiB, load_bandwidth: 1MB/s}]\n"
                 "  models: {a: {path: x, slo: {ttft: 200ms}}, b: {path: y}}\n"
                 "warmup: 1s\n"
                 "trace: {rate: 1, duration: 9s, input_tokens: 1, output_tokens: 1}\n",
                 "e.yaml",
                 [](const std::string&) { return std::nullopt; },
                 {.cores = {0}, .memory = 1U << 30U})
                 .value()) {
    for (const auto& [policy, ttft] : {std::pair("slow", 400ms), {"fast", 100ms}}) {
      for (std::int64_t seed = 0; seed < 2; ++seed) {
        LabRun run{.policy = policy, .seed = seed, .span = 3s, .device_pages = {16}};
        run.rows.push_back({.model = 0,
                            .due = 1500ms,
                            .begun = 1500ms,
                            .first = 1500ms + ttft + seed * 1ms,
                            .last = 3s,
                            .ended = 3s,
                            .completion_tokens = 3});
        run.counted = Counters::parse("heddle_model_loads_total{reason=\"request\"} 4\n");
        run.moments = {{0s, {}},
                       {2s,
                        Counters::parse("heddle_model_loads_total 4\n"
                                        "heddle_pages_total{device=\"d\"} 16\n"
                                        "heddle_pages_free{device=\"d\"} 6\n")}};
        runs_.push_back(std::move(run));
      }
    }
    runs_.back().rows.push_back({.model = 1, .due = 2s, .ended = 4s, .error = "no"});
    policies_ = summarise(runs_, objectives(lab_));
  }

  LabFile lab_;
  std::vector<LabRun> runs_{};
  std::vector<PolicySummary> policies_{};
};

TEST_F(ReportTest, TablesHaveAColumnForEachPolicy) {
  const auto figures = figure_table(policies_);
  EXPECT_EQ(figures[0], (std::vector<std::string>{"", "slow", "fast"}));
  ASSERT_EQ(figures.size(), 1 + kFigures);
  EXPECT_EQ(figures[4][0], "TTFT p50 [s]");
  EXPECT_THAT(figures[4][1], testing::StartsWith("0.4 ± 0.006"));
  const auto compared = comparison_table(policies_);
  EXPECT_EQ(compared[0], (std::vector<std::string>{"against slow", "fast"}));
  EXPECT_THAT(compared[1][1], HasSubstr("×0.25"));
  EXPECT_TRUE(comparison_table({policies_[0]}).empty());
}

// Of slow's three requests one is quick: the median of all is 400 ms, that of its runs' medians
// 250.
TEST_F(ReportTest, PredictionsAreHeldAgainstAllRequestsTogether) {
  runs_[0].rows.push_back(runs_[0].rows[0]);
  runs_[1].rows[0].first = 1600ms;
  const auto measured = summarise(runs_, objectives(lab_));
  std::vector<LabRun> foretold = runs_;
  for (LabRun& run : foretold) {
    for (bench::Row& row : run.rows) {
      row.first += row.first - row.due;
    }
  }
  const auto predicted = summarise(foretold, objectives(lab_));
  const auto table = prediction_table(measured, predicted);
  ASSERT_EQ(table.size(), 1 + 2 * 6U);
  EXPECT_THAT(table[1], testing::ElementsAre("slow", "TTFT p50 [s]", "0.4", "0.8", "×2"));
  EXPECT_THAT(table[5], testing::ElementsAre("slow", "SLO attainment [%]", "33.3", "33.3", "0"));
  EXPECT_THAT(table[11],
              testing::ElementsAre("fast", "SLO attainment [%]", "66.7", "33.3", "-33.3"));
}

TEST_F(ReportTest, NotesTellFailures) {
  EXPECT_THAT(report_notes(policies_), testing::ElementsAre("fast: 1 failed: no"));
}

TEST_F(ReportTest, JsonHasRunsPoliciesAndTheSimulatorsReport) {
  const auto json = spec::parse_json(report_json(lab_, policies_, "heddle lab e.yaml"), "it");
  ASSERT_TRUE(json) << json.error().message;
  const spec::Json& fast = json->find("policies")->as<spec::Json::Array>()->at(1);
  const spec::Json& run = fast.find("runs")->as<spec::Json::Array>()->at(0);
  EXPECT_NEAR(*run.find("ttft_p50_s")->as<double>(), 0.1, 1e-6);
  EXPECT_NEAR(*fast.find("all_requests")->find("attainment")->as<double>(), 2.0 / 3, 1e-9);
  EXPECT_EQ(*run.find("loads_by_reason")->find("request")->as<std::int64_t>(), 4);
  EXPECT_NEAR(
      *fast.find("against_first")->find("ttft_p50_s")->find("mean")->as<double>(), 0.25, 1e-2);
  const spec::Json& simulated = json->find("report")->find("runs")->as<spec::Json::Array>()->at(0);
  EXPECT_EQ(*simulated.find("policy")->as<std::string>(), "slow");
  EXPECT_EQ(*simulated.find("attainment")->as<std::int64_t>(), 0) << "400 ms are more than 200";
  EXPECT_EQ(*simulated.find("counts")->find("starts")->as<std::int64_t>(), 8);
  EXPECT_EQ(*simulated.find("span_s")->as<std::int64_t>(), 6) << "one after the other";
  EXPECT_EQ(*simulated.find("gpu_seconds")->as<std::int64_t>(), 4) << "sampled every 2 s";
}

TEST_F(ReportTest, ThePageIsTheSimulators) {
  const std::string html = report_html(lab_, policies_, "heddle lab e.yaml");
  EXPECT_THAT(html, HasSubstr("<title>heddle lab</title>"));
  EXPECT_THAT(html, HasSubstr("Means over seeds"));
  EXPECT_THAT(html, HasSubstr("against slow"));
  EXPECT_THAT(html, HasSubstr("d with 1.00 MiB behind 1.00 MB/s"));
}

TEST_F(ReportTest, RowsAreOfRequests) {
  const std::string csv = report_csv(lab_, policies_);
  EXPECT_THAT(csv, HasSubstr("policy,seed,request,model,arrival_s,"));
  EXPECT_THAT(csv, HasSubstr("slow,1,0,a,1.500000,0,3,0.401000,"));
  EXPECT_THAT(csv, HasSubstr("fast,1,1,b,2.000000,0,0,,,,0,0,refused\n"));
}

}  // namespace
}  // namespace heddle::lab
