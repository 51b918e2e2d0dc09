#include "sim/planes/planner.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr PlanTerms kTerms{.ttft_left = 5s, .tpot = 100ms, .value_price = 10.0};
constexpr StartTerms kStart{
    .prefill = 200ms, .tpot = 20ms, .bytes = 100, .kv_bytes = 30, .stay = 10s};

Plan plan(Mechanism mechanism, Duration ttft, double byte_seconds, double lost_value = 0.0) {
  return {.mechanism = mechanism,
          .ttft = ttft,
          .tpot = 50ms,
          .byte_seconds = byte_seconds,
          .lost_value = lost_value};
}

PlanChoice choose(const std::vector<Plan>& plans, const PlanTerms& terms = kTerms) {
  return choose_plan(plans, terms);
}

TEST(ChoosePlan, TakesTheCheapestThatKeepsBothObjectives) {
  Plan chatty = plan(Mechanism::kPipeline, 1s, 0.0);
  chatty.tpot = 101ms;
  const PlanChoice choice = choose({plan(Mechanism::kActivate, 2s, 50.0),
                                    plan(Mechanism::kQueue, 6s, 0.0),
                                    plan(Mechanism::kHit, 1s, 20.0, 2.0),
                                    chatty});
  EXPECT_EQ(choice.reason, PlanReason::kCheapest);
  EXPECT_EQ(choice.plan, 2U) << "20 + 10 * 2 < 50; the queue is late, the pipeline too slow";
  EXPECT_DOUBLE_EQ(choice.cost, 40.0);
}

TEST(ChoosePlan, ElseTheLeastHarmElseLate) {
  const std::vector<Plan> late = {plan(Mechanism::kQueue, 7s, 0.0),
                                  plan(Mechanism::kActivate, 6s, 99.0)};
  EXPECT_EQ(choose(late).plan, 1U);
  EXPECT_EQ(choose(late).reason, PlanReason::kLeastHarm);
  EXPECT_EQ(choose({late[0], plan(Mechanism::kActivate, 6s, 99.0, 1.5)}).plan, 0U)
      << "a second less of waiting for one and a half of others";
  EXPECT_EQ(choose({}).reason, PlanReason::kLate);
  std::vector<Plan> harmful = {plan(Mechanism::kPipeline, 1s, 0.0)};
  harmful[0].links_admit = false;
  EXPECT_EQ(choose(harmful).reason, PlanReason::kLate);
}

TEST(ChoosePlan, TakesFromOthersNoMoreThanItSaves) {
  const std::vector<Plan> plans = {plan(Mechanism::kQueue, 6s, 0.0),
                                   plan(Mechanism::kHit, 1s, 20.0, 7.0)};
  EXPECT_EQ(choose(plans).plan, 0U) << "5 s saved, 7 s lost";
  PlanTerms several = kTerms;
  several.waiting = 2;
  EXPECT_EQ(choose(plans, several).plan, 1U) << "10 s saved";
  Plan slow = plans[0];
  slow.ttft = 1s;
  slow.tpot = 250ms;
  EXPECT_EQ(choose({slow, plans[1]}).plan, 1U) << "2.5 times too slow counts as 12.5 s";
}

TEST(ChoosePlan, LooksOnlyAtWhatTheClassPermits) {
  PlanTerms hot = kTerms;
  hot.model_class = ModelClass::kHot;
  const std::vector<Plan> plans = {plan(Mechanism::kActivate, 1s, 1.0),
                                   plan(Mechanism::kInstance, 1s, 100.0)};
  EXPECT_EQ(choose(plans).plan, 0U);
  EXPECT_EQ(choose(plans, hot).plan, 1U);
  const std::vector<Plan> instance = {plans[1]};
  EXPECT_FALSE(choose(instance).plan);
  PlanTerms parts = kTerms;
  parts.parts = 2;
  EXPECT_EQ(choose(instance, parts).plan, 0U) << "there is no pipeline of several parts";
}

TEST(Permitted, SortsTheMechanismsByClass) {
  EXPECT_TRUE(permitted(Mechanism::kSwapIn, ModelClass::kExternal, 1));
  EXPECT_FALSE(permitted(Mechanism::kHit, ModelClass::kExternal, 1));
  EXPECT_FALSE(permitted(Mechanism::kInstance, ModelClass::kExternal, 2));
  EXPECT_FALSE(permitted(Mechanism::kSwapIn, ModelClass::kCold, 1));
  EXPECT_TRUE(permitted(Mechanism::kPipeline, ModelClass::kTail, 1));
  EXPECT_FALSE(permitted(Mechanism::kPipeline, ModelClass::kHot, 4));
  for (const ModelClass c : {ModelClass::kExternal, ModelClass::kHot, ModelClass::kTail}) {
    EXPECT_TRUE(permitted(Mechanism::kQueue, c, 1));
    EXPECT_TRUE(permitted(Mechanism::kReserve, c, 1));
  }
}

TEST(Plans, AreWhatTheMechanismsPredict) {
  const RunningInstance instance{.devices = {DeviceId(1)}, .ttft = 3s, .tpot = 30ms};
  EXPECT_EQ(queue_plan(instance).ttft, 3s);

  const Plan active = activation_plan({DeviceId(4)}, 700ms, 1.5, kStart);
  EXPECT_EQ(active.ttft, 900ms);
  EXPECT_DOUBLE_EQ(active.byte_seconds, 1000.0);
  EXPECT_DOUBLE_EQ(active.lost_value, 1.5);
  EXPECT_EQ(swap_in_plan({}, 5s, 0.0, kStart).ttft, 5200ms);
  EXPECT_EQ(reservation_plan({}, 2s, 5s, kStart).ttft, 7200ms);
}

TEST(Plans, OfALaunchFollowItsOutcome) {
  constexpr LaunchTimes kTimes{.hit = 500ms, .attach = 1s, .load = 4s};
  Launch launch{.outcome = LaunchOutcome::kHit, .devices = {DeviceId(2)}};
  launch.lost.basic = 2.0;
  launch.lost.burst = 1.0;
  const auto hit = launch_plan(launch, kTimes, kStart);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->ttft, 700ms);
  EXPECT_DOUBLE_EQ(hit->byte_seconds, 300.0) << "the weights are there, 30 bytes of KV are not";
  EXPECT_DOUBLE_EQ(hit->lost_value, 3.0);
  launch.outcome = LaunchOutcome::kAttach;
  EXPECT_EQ(launch_plan(launch, kTimes, kStart)->ttft, 1200ms);
  launch.outcome = LaunchOutcome::kMiss;
  EXPECT_EQ(launch_plan(launch, kTimes, kStart)->mechanism, Mechanism::kInstance);
  EXPECT_DOUBLE_EQ(launch_plan(launch, kTimes, kStart)->byte_seconds, 1000.0);
  launch.outcome = LaunchOutcome::kWait;
  EXPECT_EQ(launch_plan(launch, kTimes, kStart), std::nullopt);
}

TEST(Plans, OfAPipelineCountEveryStage) {
  policy::StartPlan start{.ttft = 6s, .tpot = 80ms, .lost_value = 4.0};
  start.stages = {{.device = DeviceId(1), .full = true, .reserve_bytes = 17},
                  {.device = DeviceId(9), .reserve_bytes = 9}};
  const Plan pipeline = pipeline_plan(start, kStart);
  EXPECT_EQ(pipeline.ttft, 6s);
  EXPECT_EQ(pipeline.tpot, 80ms);
  EXPECT_DOUBLE_EQ(pipeline.byte_seconds, 260.0);
  EXPECT_EQ(pipeline.devices, (std::vector{DeviceId(1), DeviceId(9)}));
  start.tpot.reset();
  EXPECT_EQ(pipeline_plan(start, kStart).tpot, 20ms);
}

// Properties: never a plan that spoils others' transfers or is not permitted; none that keeps the
// objectives and takes from nobody is cheaper; being late would not do less harm; the order of the
// proposals does not matter.
TEST(ChoosePlan, KeepsItsPromisesOnRandomInput) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<Plan> plans;
    for (std::uint64_t i = 0; i < rng.below(8); ++i) {
      plans.push_back(plan(static_cast<Mechanism>(rng.below(9)),
                           1s * rng.below(8),
                           static_cast<double>(rng.below(5)),
                           static_cast<double>(rng.below(3))));
      plans.back().devices = {DeviceId(i)};
      plans.back().tpot = 20ms * rng.below(8);
      plans.back().links_admit = rng.below(4) != 0;
    }
    PlanTerms terms = kTerms;
    terms.model_class = static_cast<ModelClass>(rng.below(5));
    terms.parts = rng.below(3) == 0 ? 2 : 1;
    const PlanChoice choice = choose(plans, terms);
    for (const Plan& other : plans) {
      if (!other.links_admit || !permitted(other.mechanism, terms.model_class, terms.parts)) {
        continue;
      }
      ASSERT_TRUE(choice.plan);
      const bool keeps = other.ttft <= terms.ttft_left && other.tpot <= terms.tpot;
      if (keeps && other.lost_value == 0.0) {
        ASSERT_EQ(choice.reason, PlanReason::kCheapest);
      }
      const Plan& chosen = plans[*choice.plan];
      if (choice.reason == PlanReason::kCheapest && !keeps && other.tpot <= terms.tpot) {
        ASSERT_LE(chosen.lost_value + to_seconds(chosen.ttft),
                  other.lost_value + to_seconds(other.ttft));
      } else if (choice.reason == PlanReason::kCheapest && keeps && other.lost_value == 0.0) {
        ASSERT_LE(choice.cost, other.byte_seconds);
      }
    }
    if (!choice.plan) {
      continue;
    }
    ASSERT_TRUE(plans[*choice.plan].links_admit);
    std::vector<Plan> reversed(plans.rbegin(), plans.rend());
    ASSERT_EQ(reversed[*choose(reversed, terms).plan], plans[*choice.plan]);
  }
}

}  // namespace
}  // namespace heddle::sim
