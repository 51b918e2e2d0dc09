#include "policy/replica_score.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

ModelDemand demand(double mean, double peak, std::int64_t instances = 0) {
  return {.model = ModelId(1),
          .mean_load = mean,
          .peak_load = peak,
          .batch = 32,
          .instances = instances,
          .load_time = 2s,
          .hit_time = 500ms};
}

struct Counts {
  std::size_t basic = 0;
  std::size_t burst = 0;
  friend bool operator==(const Counts&, const Counts&) = default;
};

Counts counts(const ModelDemand& model, ScoreVariant variant) {
  Counts result;
  for (const DesiredReplica& replica : desired_replicas(model, variant)) {
    ++(replica.kind == ReplicaKind::kBasic ? result.basic : result.burst);
  }
  return result;
}

TEST(DesiredReplicas, CountsAsEquations5And6) {
  // 70 / 32 -> 3, 130 / 32 -> 5.
  EXPECT_EQ(counts(demand(70, 130), ScoreVariant::kPaper), (Counts{3, 2}));
  EXPECT_EQ(counts(demand(70, 130, 1), ScoreVariant::kPaper), (Counts{2, 2}));
  EXPECT_EQ(counts(demand(70, 130, 4), ScoreVariant::kPaper), (Counts{0, 1}));
  EXPECT_EQ(counts(demand(70, 130, 6), ScoreVariant::kPaper), (Counts{0, 0}));
  EXPECT_EQ(counts(demand(0, 0), ScoreVariant::kPaper), (Counts{0, 0}));
}

TEST(DesiredReplicas, CorrectedCountsByTheLoadAtWhichTheAutoscalerActs) {
  // 0.8 * 32 = 25.6: one instance is enough for 25.6, not for 26.
  EXPECT_EQ(counts(demand(30, 30), ScoreVariant::kPaper), (Counts{1, 0}));
  EXPECT_EQ(counts(demand(30, 30), ScoreVariant::kCorrected), (Counts{2, 0}));
  EXPECT_EQ(counts(demand(25, 25), ScoreVariant::kCorrected), (Counts{1, 0}));
}

TEST(DesiredReplicas, ScoresAsEquations7And8) {
  const auto replicas = desired_replicas(demand(40, 100), ScoreVariant::kPaper);
  ASSERT_EQ(replicas.size(), 4U);  // 2 basic, 2 burst; burstiness 60 / 40.
  EXPECT_EQ(replicas[0].worth, (ReplicaWorth{.tier = 1, .score = 2}));
  EXPECT_NEAR(replicas[1].worth.score, std::exp(-0.25) * 2, 1e-12);
  EXPECT_NEAR(replicas[2].worth.score, std::exp(-0.5) * 2 * 1.5, 1e-12);
  EXPECT_NEAR(replicas[3].worth.score, std::exp(-0.75) * 2 * 1.5, 1e-12);
  EXPECT_EQ(replicas[3].worth.tier, 0);
  EXPECT_LT(replicas[2].worth, replicas[1].worth) << "basic before burst, whatever the score";
}

TEST(DesiredReplicas, BurstinessOfEachVariant) {
  const auto burst = [](double mean, double peak, ScoreVariant variant) {
    return desired_replicas(demand(mean, peak, 1), variant).at(0).worth.score;
  };
  // One instance covers the mean; one burst replica, so exp(0) = 1 and T_c = 2 s.
  EXPECT_DOUBLE_EQ(burst(20, 40, ScoreVariant::kPaper), 2 * 1);
  EXPECT_DOUBLE_EQ(burst(20, 40, ScoreVariant::kArtifact), 2 * 2);
  EXPECT_DOUBLE_EQ(burst(20, 40, ScoreVariant::kCorrected), 2 * 1);
  EXPECT_DOUBLE_EQ(burst(0.5, 40, ScoreVariant::kPaper), 2 * 79);
  EXPECT_DOUBLE_EQ(burst(0.5, 40, ScoreVariant::kCorrected), 2 * 39.5);
}

TEST(DesiredReplicas, ANearlyIdleModelDoesNotOutrankAHotOne) {
  const auto idle = desired_replicas(demand(0.01, 1), ScoreVariant::kCorrected);
  ASSERT_EQ(idle.size(), 1U);
  EXPECT_EQ(idle[0].kind, ReplicaKind::kBurst);
  EXPECT_DOUBLE_EQ(idle[0].worth.score, 2 * 0.99);
  const auto hot = desired_replicas(demand(20, 60, 1), ScoreVariant::kCorrected);
  EXPECT_GT(hot[0].worth, idle[0].worth);
  // As printed, it does.
  EXPECT_EQ(desired_replicas(demand(0.01, 1), ScoreVariant::kPaper)[0].kind, ReplicaKind::kBasic);
}

TEST(DesiredReplicas, NoLoadAndAPeak) {
  EXPECT_EQ(desired_replicas(demand(0, 3), ScoreVariant::kPaper).at(0).worth.score,
            std::numeric_limits<double>::infinity());
  EXPECT_DOUBLE_EQ(desired_replicas(demand(0, 3), ScoreVariant::kCorrected).at(0).worth.score,
                   2 * 3);
  EXPECT_EQ(counts(demand(0, 3, 1), ScoreVariant::kCorrected), (Counts{0, 0}));
}

TEST(DesiredReplicas, APeakBelowTheMeanCountsAsTheMean) {
  EXPECT_EQ(desired_replicas(demand(40, 10), ScoreVariant::kCorrected),
            desired_replicas(demand(40, 40), ScoreVariant::kCorrected));
}

TEST(DesiredReplicas, ValueIsTheTimeExpectedToBeSaved) {
  // Mean 25.6 = what one instance serves, 99th percentile 51.2: 1 %.
  const auto replicas = desired_replicas(demand(25.6, 51.2), ScoreVariant::kValue);
  ASSERT_EQ(replicas.size(), 2U);
  EXPECT_NEAR(replicas[0].worth.score, 0.99 * 1.5, 1e-5);  // The load exceeds 0.
  EXPECT_NEAR(replicas[1].worth.score, 0.5 * 1.5, 1e-6);   // The load exceeds 25.6.
  EXPECT_EQ(replicas[0].worth.tier, 0);
}

// Property: whoever counts them need not list them.
TEST(DesiredReplicas, AreAsManyAsAreCounted) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const double mean = static_cast<double>(rng.below(2000)) / 10;
    const double peak = static_cast<double>(rng.below(3000)) / 10;
    const ModelDemand model = demand(mean, peak, static_cast<std::int64_t>(rng.below(6)));
    for (const ScoreVariant variant : {ScoreVariant::kPaper,
                                       ScoreVariant::kArtifact,
                                       ScoreVariant::kCorrected,
                                       ScoreVariant::kValue}) {
      ASSERT_EQ(desired_count(model, variant), std::ssize(desired_replicas(model, variant)));
    }
  }
}

TEST(TailProbability, IsTheNormalOne) {
  EXPECT_NEAR(tail_probability(10, 0, 10), 0.01, 1e-6);
  EXPECT_NEAR(tail_probability(0, 0, 10), 0.5, 1e-6);
  EXPECT_NEAR(tail_probability(-10, 0, 10), 0.99, 1e-6);
  EXPECT_EQ(tail_probability(1, 2, 2), 1);
  EXPECT_EQ(tail_probability(2, 2, 2), 0);
}

}  // namespace
}  // namespace heddle::policy
