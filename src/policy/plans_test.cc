#include "policy/plans.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "policy/placement.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr PlanOptions kTwoSeconds{.ttft_left = 2s, .soonest = 1s, .load = 1s};

Plan hit(std::uint64_t device = 1) {
  return {.kind = PlanKind::kHit,
          .outcome = PlacementOutcome::kServe,
          .reason = PlacementReason::kServing,
          .where = DeviceId(device),
          .first = 100ms};
}

Plan queue_for(Duration wait) {
  Plan plan = hit();
  plan.kind = PlanKind::kQueue;
  plan.first = wait;
  return plan;
}

Plan attach(Duration left) {
  Plan plan = hit();
  plan.kind = PlanKind::kAttach;
  plan.load = left;
  return plan;
}

Plan activate(Duration load, double lost = 0, std::uint64_t device = 1) {
  return {.kind = PlanKind::kActivate,
          .outcome = PlacementOutcome::kLoad,
          .reason = lost > 0 ? PlacementReason::kIdleVictims : PlacementReason::kFreePages,
          .where = DeviceId(device),
          .load = load,
          .lost = lost};
}

Plan drain(Duration leave) {
  return {.kind = PlanKind::kActivate,
          .outcome = PlacementOutcome::kDrain,
          .reason = PlacementReason::kBusyVictims,
          .where = DeviceId(7),
          .leave = leave,
          .load = 1s};
}

Plan stages(Duration load, double cost, double lost = 0) {
  Plan plan = activate(load, lost);
  plan.kind = PlanKind::kStages;
  plan.cost = cost;
  return plan;
}

Plan of_kind(PlanKind kind, Duration load) {
  Plan plan = activate(load);
  plan.kind = kind;
  return plan;
}

Plan not_before(Instant at, PlacementReason reason = PlacementReason::kFairness) {
  return {.outcome = PlacementOutcome::kWait, .reason = reason, .not_before = at};
}

PlanKind chosen(const std::vector<Plan>& plans, const PlanOptions& options = kTwoSeconds) {
  return choose_plan(plans, options).best->kind;
}

TEST(Plans, EachKindIsTakenWhereItIsCheapest) {
  EXPECT_EQ(chosen({queue_for(200ms), activate(1s)}), PlanKind::kQueue);
  EXPECT_EQ(chosen({hit(), queue_for(1s), activate(1s)}), PlanKind::kHit);
  EXPECT_EQ(chosen({attach(300ms), activate(1s)}), PlanKind::kAttach);
  EXPECT_EQ(chosen({queue_for(20s), attach(9s), activate(1s)}), PlanKind::kActivate);
  EXPECT_EQ(chosen({activate(8s), stages(1500ms, 1)}), PlanKind::kStages);
  EXPECT_EQ(chosen({queue_for(9s), of_kind(PlanKind::kGroup, 1s)}), PlanKind::kGroup);
  EXPECT_EQ(chosen({queue_for(9s), of_kind(PlanKind::kSwapIn, 1s)}), PlanKind::kSwapIn);
  EXPECT_EQ(chosen({queue_for(9s), of_kind(PlanKind::kWeave, 10ms), activate(1s)}),
            PlanKind::kWeave);
}

TEST(Plans, InTimeTheCheapestIsTakenForAllUsers) {
  EXPECT_EQ(chosen({activate(1s), stages(500ms, 1.5)}), PlanKind::kActivate)
      << "stages keep further devices busy for half a second's gain";
  EXPECT_EQ(chosen({activate(1s, 3), stages(500ms, 1.5)}), PlanKind::kStages)
      << "the whole model would displace what is worth more";
  const auto best = choose_plan({{activate(1s, 1.0, 1), activate(1600ms, 0, 2)}}, kTwoSeconds).best;
  EXPECT_EQ(best->where, DeviceId(2)) << "0.6 s later, and nobody loses 1 s";
}

TEST(Plans, WhereNothingIsInTimeTheSoonestIsTakenForItsLoss) {
  const PlanOptions overdue{.ttft_left = 1ns, .soonest = 4s, .load = 4s};
  EXPECT_EQ(chosen({activate(4s), stages(2s, 9)}, overdue), PlanKind::kStages)
      << "what else is busy does not count for one who is late";
  EXPECT_EQ(chosen({activate(4s), stages(2s, 9, 2.5)}, overdue), PlanKind::kActivate)
      << "2 s sooner, but others lose 2.5 s";
}

TEST(Plans, InTimeComesBeforeLate) {
  const auto choice = choose_plan({{activate(1500ms, 9, 1), activate(2100ms, 0, 2)}}, kTwoSeconds);
  EXPECT_EQ(choice.best->where, DeviceId(1));
  ASSERT_EQ(choice.others.size(), 1U);
  EXPECT_EQ(why_not(choice.others[0], *choice.best, kTwoSeconds), "would be late");
}

TEST(Plans, APlanWhoseStepsAreTooSlowIsLate) {
  PlanOptions options = kTwoSeconds;
  options.tpot = 50ms;
  Plan slow = stages(500ms, 0);
  slow.tpot = 60ms;
  EXPECT_EQ(chosen({slow, activate(1s, 5)}, options), PlanKind::kActivate);
  slow.tpot = 40ms;
  EXPECT_EQ(chosen({slow, activate(1s, 5)}, options), PlanKind::kStages);
}

TEST(Plans, NoBusyModelGoesWhereIdleOnesCan) {
  const PlanChoice choice = choose_plan({{drain(10ms), activate(1500ms, 9)}}, kTwoSeconds);
  EXPECT_EQ(choice.best->outcome, PlacementOutcome::kLoad);
  EXPECT_EQ(why_not(choice.others.at(0), *choice.best, kTwoSeconds),
            "busy models would have to go");
}

TEST(Plans, OfBusyModelsThoseGoThatWillHaveLeftFirst) {
  Plan few = drain(3s);
  few.victims_queue = 1;
  Plan quick = drain(1s);
  quick.victims_queue = 2;
  quick.where = DeviceId(8);
  EXPECT_EQ(choose_plan({{few, quick}}, kTwoSeconds).best->where, DeviceId(8));
}

TEST(Plans, WhereRequestsWaitForMemoryIsTheLastPlace) {
  Plan there = activate(1s);
  there.short_of_pages = true;
  const PlanChoice choice = choose_plan({{there, activate(1500ms, 1, 2)}}, kTwoSeconds);
  EXPECT_EQ(choice.best->where, DeviceId(2));
  EXPECT_EQ(why_not(there, *choice.best, kTwoSeconds), "requests wait there for memory");
}

TEST(Plans, WhatMayNotBeginYetIsNamedAndAskedAgain) {
  const PlanChoice alone = choose_plan({{not_before(Instant{9s}), not_before(Instant{7s})}}, {});
  EXPECT_EQ(alone.best->outcome, PlacementOutcome::kWait);
  EXPECT_EQ(alone.retry_at, Instant{7s});
  const PlanChoice beside = choose_plan({{not_before(Instant{9s}), activate(1s)}}, {});
  EXPECT_EQ(beside.best->kind, PlanKind::kActivate);
  EXPECT_EQ(why_not(beside.others.at(0), *beside.best, {}), "not yet");
  EXPECT_FALSE(choose_plan({}, {}).best);
}

TEST(Plans, OneOfEachKindAndReasonIsTold) {
  std::vector<Plan> plans;
  for (std::uint64_t device = 1; device <= 20; ++device) {
    plans.push_back(activate(1s, 0, device));
    plans.push_back(activate(1s, 0.01 * static_cast<double>(device), 100 + device));
    plans.push_back(stages(1s + 10ms * device, 1));
    plans.push_back(not_before(Instant{1s * device}));
    plans.push_back(not_before(Instant{1s * device}, PlacementReason::kResidence));
  }
  const PlanChoice choice = choose_plan(plans, kTwoSeconds);
  EXPECT_EQ(choice.best->where, DeviceId(1));
  ASSERT_EQ(choice.others.size(), kPlansTold);
  EXPECT_EQ(choice.others[0].where, DeviceId(101)) << "loses as good as nothing";
  EXPECT_EQ(choice.others[1].kind, PlanKind::kStages);
  EXPECT_EQ(choice.others[2].reason, PlacementReason::kFairness);
}

TEST(Plans, PressureIsAskedBetweenEqualsAlone) {
  int asked = 0;
  PlanPicker picker(kTwoSeconds, [&](const Plan& plan) {
    ++asked;
    return plan.where == DeviceId(2) ? 1.0 : 2.0;
  });
  picker.add(activate(1s, 0, 1));
  picker.add(activate(5s, 0, 4));
  EXPECT_EQ(asked, 0);
  picker.add(activate(1s, 0, 2));
  picker.add(activate(1s, 0, 3));
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(picker.choose().best->where, DeviceId(2));
}

// ---- Properties, on random plans ----

Plan random_plan(Rng& rng, std::uint64_t id) {
  constexpr std::array kOutcomes{PlacementOutcome::kServe,
                                 PlacementOutcome::kLoad,
                                 PlacementOutcome::kLoad,
                                 PlacementOutcome::kDrain,
                                 PlacementOutcome::kWait,
                                 PlacementOutcome::kNever};
  Plan plan{.kind = static_cast<PlanKind>(rng.below(8)),
            .outcome = kOutcomes.at(rng.below(kOutcomes.size())),
            .reason = static_cast<PlacementReason>(rng.below(9)),
            .where = DeviceId(id),
            .leave = 100ms * rng.below(10),
            .load = 100ms * rng.below(30),
            .first = 10ms * rng.below(10),
            .lost = rng.below(2) == 0 ? 0 : 0.1 * static_cast<double>(rng.below(40)),
            .victims_queue = static_cast<std::int64_t>(rng.below(3)),
            .pressure = static_cast<double>(rng.below(3))};
  plan.cost = 0.1 * static_cast<double>(rng.below(10));
  plan.short_of_pages = rng.below(6) == 0;
  return plan;
}

PlanOptions random_options(Rng& rng) {
  return {.ttft_left = 100ms * rng.below(40),
          .soonest = 100ms * rng.below(10),
          .load = 500ms * rng.below(4)};
}

TEST(Plans, TheOrderOfPlansDoesNotMatter) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<Plan> plans;
    for (std::uint64_t i = 0; i < 2 + rng.below(10); ++i) {
      plans.push_back(random_plan(rng, i));
    }
    const PlanOptions options = random_options(rng);
    const PlanChoice choice = choose_plan(plans, options);
    std::reverse(plans.begin(), plans.end());
    std::swap(plans[0], plans[rng.below(plans.size())]);
    ASSERT_EQ(choose_plan(plans, options), choice);
    std::set<std::pair<PlanKind, PlacementReason>> told{{choice.best->kind, choice.best->reason}};
    for (const Plan& other : choice.others) {
      ASSERT_TRUE(told.emplace(other.kind, other.reason).second);
      ASSERT_FALSE(why_not(other, *choice.best, options).empty());
    }
  }
}

/// A faster link to one place makes no chosen plan late that was in time, and none dearer; where
/// nothing is lost nor kept busy it makes no first token later by more than counts as equal.
TEST(Plans, AFasterLinkMakesNothingWorse) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const bool free = seed % 2 == 0;
    std::vector<Plan> plans;
    for (std::uint64_t i = 0; i < 2 + rng.below(6); ++i) {
      Plan plan = random_plan(rng, i);
      plan.outcome = PlacementOutcome::kLoad;
      plan.short_of_pages = false;
      plan.leave = {};
      plan.lost = free ? 0 : plan.lost;
      plan.cost = free ? 0 : plan.cost;
      plans.push_back(plan);
    }
    PlanOptions options = random_options(rng);
    options.load = 500ms;
    const Plan before = *choose_plan(plans, options).best;
    Plan& faster = plans[rng.below(plans.size())];
    faster.load /= 2;
    const Plan after = *choose_plan(plans, options).best;
    constexpr double kSlack = 0.05 + 1e-9;
    ASSERT_GE(in_time(after, options), in_time(before, options));
    if (in_time(after, options) == in_time(before, options)) {
      ASSERT_LE(price(after, options), price(before, options) + kSlack);
    }
    if (free) {
      ASSERT_LE(after.ttft(), before.ttft() + 50ms);
    }
  }
}

/// More memory on one device: the model comes no later, and nothing that serves has to end for it
/// that would not have had to before.
TEST(Plans, MoreMemoryMakesNothingLater) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<PlacementDevice> devices;
    for (std::uint64_t d = 0; d < 1 + rng.below(4); ++d) {
      PlacementDevice device{.id = DeviceId(d),
                             .need_pages = 50,
                             .pages = 100,
                             .free_pages = static_cast<std::int64_t>(rng.below(60)),
                             .available = true};
      for (std::uint64_t r = 0; r < rng.below(5); ++r) {
        device.residents.push_back({.model = ModelId(r + 1),
                                    .pages = 10 + static_cast<std::int64_t>(rng.below(30)),
                                    .queue = static_cast<std::int64_t>(rng.below(2)),
                                    .last_used = Instant{1s * rng.below(5)},
                                    .worth = 0.1 * static_cast<double>(rng.below(30))});
        ResidentView& resident = device.residents.back();
        resident.leaves = resident.queue > 0 ? 1s : 0s;
      }
      devices.push_back(device);
    }
    const PlacementOptions options{.drain_after = 1s, .load = 1s, .soonest = 1s, .first = 100ms};
    const Instant now{20s};
    const Plan before = *choose_among(devices, now, now - 5s, options).best;
    PlacementDevice& roomier = devices[rng.below(devices.size())];
    const std::int64_t more = 10 + static_cast<std::int64_t>(rng.below(40));
    roomier.pages += more;
    roomier.free_pages += more;
    const Plan after = *choose_among(devices, now, now - 5s, options).best;
    ASSERT_LE(after.outcome, before.outcome);
    ASSERT_TRUE(!before.takes() || after.ttft() <= before.ttft());
  }
}

}  // namespace
}  // namespace heddle::policy
