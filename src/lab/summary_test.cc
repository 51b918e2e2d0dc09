#include "lab/summary.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::lab {
namespace {

using namespace std::chrono_literals;

double of(const Figures& figures, Figure figure) {
  return figures.at(static_cast<std::size_t>(figure));
}

/// `late` of a hundred steps.
LabRun run_of(const std::string& policy, std::int64_t seed, Duration ttft, int late = 0) {
  LabRun run{.policy = policy, .seed = seed, .span = 2s};
  // Eleven tokens 10 ms apart, of a model with objectives and of one without.
  for (const std::size_t model : {std::size_t{0}, std::size_t{1}}) {
    run.rows.push_back({.model = model,
                        .due = 1s,
                        .begun = 1s,
                        .first = 1s + ttft,
                        .last = 1s + ttft + 100ms,
                        .ended = 1s + ttft + 110ms,
                        .completion_tokens = 11});
  }
  run.rows.push_back({.due = 1s, .ended = 3s, .error = "refused"});
  run.counted = Counters::parse(
      "heddle_model_loads_total{reason=\"request\"} 2\n"
      "heddle_model_loads_total{reason=\"forecast\"} 1\n"
      "heddle_model_starts_total{kind=\"hit\",model_name=\"a\"} 5\n"
      "heddle_worker_steps_total{device=\"a\"} 60\nheddle_worker_steps_total{device=\"b\"} 40\n"
      "heddle_worker_late_steps_total{device=\"b\"} " +
      std::to_string(late) +
      "\nheddle_worker_slow_steps_total{device=\"b\"} 3\n"
      "heddle_worker_overrun_steps_total{device=\"b\"} 1\n");
  return run;
}

const std::vector<sim::Objective> kObjectives{{.ttft = 200ms, .tpot = 10ms}, {}};

Figures figures_of_one(const LabRun& run) {
  return figures_of({&run}, kObjectives);
}

TEST(FiguresOf, CountsWhatCame) {
  const Figures figures = figures_of_one(run_of("p", 0, 300ms, 2));
  EXPECT_EQ(of(figures, Figure::kRequests), 3);
  EXPECT_EQ(of(figures, Figure::kFailed), 1);
  EXPECT_NEAR(of(figures, Figure::kTtftP99), 0.3, 1e-6);
  EXPECT_NEAR(of(figures, Figure::kTpotP50), 0.01, 1e-6);
  EXPECT_NEAR(of(figures, Figure::kLatencyP50), 0.41, 1e-6);
  EXPECT_NEAR(of(figures, Figure::kTtftAttainment), 1.0 / 3, 1e-9);
  EXPECT_NEAR(of(figures, Figure::kTpotAttainment), 2.0 / 3, 1e-9);
  EXPECT_NEAR(of(figures, Figure::kAttainment), 1.0 / 3, 1e-9);
  EXPECT_NEAR(of(figures, Figure::kTokensPerSecond), 11, 1e-9);
  EXPECT_EQ(of(figures, Figure::kLoads), 3);
  EXPECT_EQ(of(figures, Figure::kPrewarms), 1);
  EXPECT_EQ(of(figures, Figure::kHits), 5);
  EXPECT_EQ(of(figures, Figure::kMisses), 0);
  EXPECT_NEAR(of(figures, Figure::kLateSteps), 0.02, 1e-9);
  EXPECT_EQ(of(figures, Figure::kSlowSteps), 3);
  EXPECT_EQ(of(figures, Figure::kOverrunSteps), 1);
  const Figures quick = figures_of_one(run_of("p", 0, 200ms));
  EXPECT_NEAR(of(quick, Figure::kAttainment), 2.0 / 3, 1e-9);
}

// One run of a request and one of three: a mean of their medians would be 0.35 s.
TEST(FiguresOf, SeveralRunsAreThoseOfAllTheirRequests) {
  LabRun few = run_of("p", 0, 200ms);
  few.rows.erase(few.rows.begin() + 1, few.rows.end());
  LabRun many = run_of("p", 1, 500ms, 4);
  many.rows.push_back(many.rows[0]);
  const Figures both = figures_of({&few, &many}, kObjectives);
  EXPECT_EQ(of(both, Figure::kRequests), 2.5);
  EXPECT_EQ(of(both, Figure::kFailed), 0.5);
  EXPECT_NEAR(of(both, Figure::kTtftP50), 0.5, 1e-6);
  EXPECT_NEAR(of(both, Figure::kTtftAttainment), 2.0 / 5, 1e-9);
  EXPECT_NEAR(of(both, Figure::kTokensPerSecond), 11, 1e-9) << "44 in twice two seconds";
  EXPECT_EQ(of(both, Figure::kLoads), 3);
  EXPECT_NEAR(of(both, Figure::kLateSteps), 0.02, 1e-9);
  EXPECT_EQ(of(both, Figure::kSlowSteps), 3);
}

TEST(Intervals, AreStudents) {
  // Of 1, 2, 3, 4, 5: s = 1.5811, t(4) = 2.776, half = 1.963.
  const Interval five = mean_interval({1, 2, 3, 4, 5});
  EXPECT_NEAR(five.mean, 3, 1e-12);
  EXPECT_NEAR(five.low, 3 - 1.963, 1e-3);
  EXPECT_NEAR(five.high, 3 + 1.963, 1e-3);
  const Interval one = mean_interval({7});
  EXPECT_EQ(one.low, 7);
  EXPECT_EQ(one.high, 7);
  EXPECT_EQ(mean_interval({}).mean, 0);
}

TEST(Intervals, OfRatiosArePairwiseAndGeometric) {
  const Interval same = ratio_interval({2, 4, 8}, {1, 2, 4});
  EXPECT_NEAR(same.mean, 2, 1e-12);
  EXPECT_NEAR(same.low, 2, 1e-9) << "each pair has the same ratio";
  const Interval spread = ratio_interval({4, 1}, {1, 1});
  EXPECT_NEAR(spread.mean, 2, 1e-12);
  EXPECT_LT(spread.low, 1);
  EXPECT_EQ(ratio_interval({0, 0}, {1, 1}).mean, 0);
  EXPECT_NEAR(difference_interval({0.5, 0.7}, {0.4, 0.6}).mean, 0.1, 1e-12);
}

TEST(Summarise, HoldsPoliciesAgainstEachOther) {
  const std::vector<LabRun> runs{run_of("slow", 0, 400ms),
                                 run_of("slow", 1, 800ms),
                                 run_of("fast", 0, 100ms),
                                 run_of("fast", 1, 200ms, 3)};
  const auto policies = summarise(runs, kObjectives);
  ASSERT_EQ(policies.size(), 2U);
  EXPECT_EQ(policies[0].policy, "slow");
  ASSERT_EQ(policies[1].runs.size(), 2U);
  EXPECT_NEAR(compare(policies[1], policies[0], Figure::kTtftP50).mean, 0.25, 1e-6);
  EXPECT_EQ(of(policies[1].together, Figure::kRequests), 3);
  EXPECT_NEAR(compare(policies[1], policies[0], Figure::kAttainment).mean, 1.0 / 3, 1e-6);
  EXPECT_THAT(invalid_runs(policies),
              testing::ElementsAre(testing::HasSubstr("fast, seed 1: invalid, as 3.0 %")));
}

}  // namespace
}  // namespace heddle::lab
