#include "sim/results.h"

#include <gtest/gtest.h>

#include "sim/test_run.h"

namespace heddle::sim {
namespace {

TEST(Results, CountWhatHappened) {
  const auto results = run_two_models({});
  EXPECT_EQ(results->counts().completed, 2);
  EXPECT_EQ(results->ttft().count(), 2U);
  ASSERT_EQ(results->models().size(), 2U);
  EXPECT_EQ(results->models()[1].cold, 1);
  // A cold start takes longer than the objective of 2 s; the pace of 50 ms is kept.
  EXPECT_EQ(results->ttft_attainment(), 0);
  EXPECT_EQ(results->tpot_attainment(), 1);
  EXPECT_EQ(results->attainment(), 0);
  std::int32_t arrivals = 0;
  for (const Results::Bin& bin : results->bins()) {
    arrivals += bin.arrivals;
  }
  EXPECT_EQ(arrivals, 2);
  EXPECT_EQ(results->gpus_touched(), 1U);
  EXPECT_FALSE(results->forecast_error()) << "serverlessllm makes no forecasts";
}

// The first of the two requests comes at 0 s, the other at 30 s.
TEST(Results, LeaveOutWhatComesDuringTheWarmUp) {
  std::vector<RequestRow> rows;
  const auto all = run_two_models({});
  const auto results =
      run_two_models({.warmup = std::chrono::seconds(20),
                      .each = [&](const RequestRow& row) { rows.push_back(row); }});
  EXPECT_EQ(results->counts().arrived, 1);
  EXPECT_EQ(results->counts().completed, 1);
  EXPECT_EQ(results->counts().starts, 1);
  EXPECT_EQ(results->ttft().count(), 1U);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].model, ModelId(1));
  EXPECT_EQ(results->span(), all->span() - std::chrono::seconds(20));
  EXPECT_LT(results->gpu_seconds(), all->gpu_seconds());
  EXPECT_GT(results->gpu_seconds(), 0);
}

TEST(Results, GiveEveryRequestARow) {
  std::vector<RequestRow> rows;
  run_two_models({.each = [&](const RequestRow& row) { rows.push_back(row); }});
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].model, ModelId(1));
  EXPECT_EQ(rows[1].input_tokens, 200);
  EXPECT_EQ(rows[1].output_tokens, 20);
  EXPECT_TRUE(rows[1].cold);
  EXPECT_GT(*rows[1].finished, *rows[1].first_token);
}

TEST(Results, TimelineTellsOwnersApart) {
  const auto results = run_two_models({.timeline = true});
  std::vector<std::int64_t> weights(2, 0);
  for (const Results::Moment& moment : results->timeline()) {
    ASSERT_EQ(moment.gpus.size(), 1U);
    std::int64_t all = 0;
    for (const OwnedPages& owned : moment.gpus[0]) {
      all += owned.pages;
      if (owned.use == PageUse::kWeights) {
        weights[owned.model.value()] = owned.pages;
      }
    }
    EXPECT_LE(all, results->gpu_pages()[0]);
  }
  // 16,059,990,016 bytes in pages of 2 MiB, each model in its turn.
  EXPECT_EQ(weights, (std::vector<std::int64_t>{7658, 7658}));
}

TEST(Results, TakeWhatRealServersDid) {
  using std::chrono::milliseconds;
  const Objective objective{.ttft = milliseconds(100), .tpot = milliseconds(10)};
  Results results;
  RequestRow row{.model = ModelId(1), .arrival = Instant(milliseconds(500)), .output_tokens = 11};
  row.first_token = row.arrival + milliseconds(100);
  row.finished = *row.first_token + milliseconds(100);
  results.add(row, objective);
  row.finished = *row.first_token + milliseconds(101);
  results.add(row, objective);
  results.add({.model = ModelId(0), .arrival = Instant(milliseconds(1500))}, objective);
  results.count(Instant(milliseconds(1700)), 3, 2, 1);
  results.finish({.models = 3, .counts = {.evictions = 1}, .gpu_pages = {64, 64}});
  EXPECT_DOUBLE_EQ(results.ttft_attainment(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(results.attainment(), 1.0 / 3);
  ASSERT_EQ(results.models().size(), 3U);
  EXPECT_EQ(results.models()[1].completed, 2);
  EXPECT_EQ(results.models()[0].completed, 0);
  ASSERT_EQ(results.bins().size(), 2U);
  EXPECT_EQ(results.bins()[0].met, 1);
  EXPECT_EQ(results.bins()[1].loads, 3);
  EXPECT_EQ(results.gpu_pages().size(), 2U);
  EXPECT_EQ(results.counts().evictions, 1);
}

}  // namespace
}  // namespace heddle::sim
