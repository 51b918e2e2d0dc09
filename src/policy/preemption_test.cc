#include "policy/preemption.h"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{1000s};
constexpr PreemptionOptions kPaper{.variant = PreemptionVariant::kPaper, .residence_swaps = 0};
constexpr PreemptionOptions kLeast{};

SwapCandidate engine(std::uint64_t model, std::int64_t pages, std::int64_t queue, Duration used) {
  return {.model = ModelId(model),
          .holds = {{DeviceId(0), pages}},
          .queue = queue,
          .last_used = Instant(used),
          .running_since = Instant(1s),
          .swap_out = 2s,
          .swap_in = 5s};
}

Preemption choose(const std::vector<SwapCandidate>& candidates,
                  std::int64_t missing,
                  const PreemptionOptions& options = kLeast) {
  const std::vector<DevicePages> all = {{DeviceId(0), missing}};
  return choose_swap_victims(candidates, all, kNow, 10s, options);
}

std::vector<ModelId> models(std::vector<std::uint64_t> ids) {
  std::vector<ModelId> result;
  for (const std::uint64_t id : ids) {
    result.emplace_back(id);
  }
  return result;
}

TEST(SwapVictims, ThePaperTakesTheShortestQueueThenTheLeastRecentlyUsed) {
  const std::vector<SwapCandidate> engines = {
      engine(1, 40, 2, 1s), engine(2, 40, 0, 9s), engine(3, 40, 0, 5s)};
  EXPECT_EQ(choose(engines, 30, kPaper).victims, models({3}));
  EXPECT_EQ(choose(engines, 60, kPaper).victims, models({3, 2}));
  EXPECT_EQ(choose(engines, 90, kPaper).victims, models({3, 2, 1}));
}

TEST(SwapVictims, LeastCostTakesOneRightSizedInsteadOfThreeSmall) {
  const std::vector<SwapCandidate> engines = {
      engine(1, 10, 0, 1s), engine(2, 10, 0, 2s), engine(3, 10, 0, 3s), engine(4, 30, 0, 4s)};
  EXPECT_EQ(choose(engines, 30, kPaper).victims, models({1, 2, 3}));
  EXPECT_EQ(choose(engines, 30).victims, models({4}));
}

TEST(SwapVictims, QueuesAndTheirAgeCost) {
  SwapCandidate busy = engine(1, 40, 2, 1s);
  busy.oldest_wait = 5s;
  EXPECT_DOUBLE_EQ(preemption_cost(busy, 10s), 7 * (1 + 2 * 1.5));
  EXPECT_DOUBLE_EQ(preemption_cost(busy, 0s), 7 * (1 + 2));
  EXPECT_DOUBLE_EQ(preemption_cost(engine(2, 40, 0, 1s), 10s), 7);
  // Two idle ones (14 s) rather than one with requests that wait (28 s).
  EXPECT_EQ(choose({busy, engine(2, 20, 0, 9s), engine(3, 20, 0, 8s)}, 40).victims, models({3, 2}));
}

TEST(SwapVictims, AnIdleOneCostsItsWorthAndOneWithRequestsSurelyComesBack) {
  SwapCandidate one = engine(1, 40, 0, 1s);
  one.worth = 2.5;
  EXPECT_DOUBLE_EQ(preemption_cost(one, 10s), 2.5);
  SwapCandidate other = engine(2, 40, 0, 9s);
  other.worth = 2;
  EXPECT_EQ(choose({one, other}, 40).victims, models({2})) << "though it was used later";
  other.queue = 1;
  EXPECT_DOUBLE_EQ(preemption_cost(other, 10s), 7 * 2);
  EXPECT_EQ(choose({one, other}, 40).victims, models({1}));
  other.worth = 8;
  EXPECT_DOUBLE_EQ(preemption_cost(other, 10s), 8 * 2);
}

TEST(SwapVictims, AmongEqualsTheLeastRecentlyUsed) {
  EXPECT_EQ(choose({engine(1, 40, 0, 9s), engine(2, 40, 0, 3s), engine(3, 40, 0, 5s)}, 40).victims,
            models({2}));
}

TEST(SwapVictims, WhoCameJustNowStays) {
  SwapCandidate fresh = engine(1, 40, 0, 1s);
  fresh.running_since = kNow - 10s;  // It stays for 3 * 5 s.
  const Preemption waiting = choose({fresh}, 40);
  EXPECT_EQ(waiting.outcome, PreemptionOutcome::kWait);
  EXPECT_EQ(waiting.retry_at, kNow + 5s);
  EXPECT_EQ(choose({fresh}, 40, kPaper).outcome, PreemptionOutcome::kPreempt);
  EXPECT_EQ(choose({fresh, engine(2, 40, 9, 1s)}, 40).victims, models({2}));
}

TEST(SwapVictims, WhoIsHeldOrMovingIsLeftAlone) {
  SwapCandidate held = engine(1, 40, 0, 1s);
  held.held = true;
  SwapCandidate moving = engine(2, 40, 0, 1s);
  moving.in_transition = true;
  const Preemption waiting = choose({held, moving}, 40);
  EXPECT_EQ(waiting.outcome, PreemptionOutcome::kWait);
  EXPECT_FALSE(waiting.retry_at);
  EXPECT_EQ(choose({held, moving}, 81).outcome, PreemptionOutcome::kNever);
  EXPECT_EQ(choose({}, 0).outcome, PreemptionOutcome::kEnough);
}

TEST(SwapVictims, DrainsForWhatTheRequestHasLeft) {
  const std::vector<SwapCandidate> one = {engine(1, 40, 0, 1s)};
  const std::vector<DevicePages> missing = {{DeviceId(0), 40}};
  EXPECT_EQ(choose_swap_victims(one, missing, kNow, 10s, kLeast).drain, 2s);
  EXPECT_EQ(choose_swap_victims(one, missing, kNow, 500ms, kLeast).drain, 500ms);
  EXPECT_EQ(choose_swap_victims(one, missing, kNow, -1s, kLeast).drain, 0s);
}

TEST(SwapVictims, ManyCandidatesAreEnoughAndNotTooMany) {
  std::vector<SwapCandidate> engines;
  for (std::uint64_t i = 0; i < 40; ++i) {
    engines.push_back(engine(i, 1 + static_cast<std::int64_t>(i), 0, 1s * (100 - i)));
    engines.back().swap_out = 1s * (1 + (i * 7) % 5);
  }
  const Preemption result = choose(engines, 100);
  ASSERT_EQ(result.outcome, PreemptionOutcome::kPreempt);
  std::int64_t freed = 0;
  std::int64_t smallest = 1000;
  for (const ModelId victim : result.victims) {
    const std::int64_t pages = engines[victim.value()].holds[0].pages;
    freed += pages;
    smallest = std::min(smallest, pages);
  }
  EXPECT_GE(freed, 100);
  EXPECT_LT(freed - smallest, 100);
}

// Optimality: no subset costs less, on engines that hold several devices. Order does not matter.
TEST(SwapVictims, LeastCostIsTheLeastOfAllSubsets) {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<SwapCandidate> engines;
    for (std::uint64_t i = 0; i < 1 + rng.below(8); ++i) {
      SwapCandidate one = engine(i, 0, static_cast<std::int64_t>(rng.below(4)), 1s * rng.below(9));
      one.holds.clear();
      for (std::uint64_t d = 0; d < 3; ++d) {
        if (rng.below(2) == 0) {
          one.holds.push_back({DeviceId(d), 1 + static_cast<std::int64_t>(rng.below(30))});
        }
      }
      one.oldest_wait = 1s * rng.below(30);
      one.swap_in = 1s * (1 + rng.below(6));
      engines.push_back(one);
    }
    std::vector<DevicePages> missing;
    for (std::uint64_t d = 0; d < 3; ++d) {
      missing.push_back({DeviceId(d), static_cast<std::int64_t>(rng.below(50)) - 10});
    }
    double best = std::numeric_limits<double>::infinity();
    for (std::uint32_t subset = 0; subset < 1U << engines.size(); ++subset) {
      double cost = 0;
      std::vector<DevicePages> left = missing;
      for (std::size_t i = 0; i < engines.size(); ++i) {
        if ((subset >> i & 1U) == 0) {
          continue;
        }
        cost += preemption_cost(engines[i], kLeast.ageing);
        for (const DevicePages& held : engines[i].holds) {
          left[held.device.value()].pages -= held.pages;
        }
      }
      const bool enough = std::all_of(
          left.begin(), left.end(), [](const DevicePages& one) { return one.pages <= 0; });
      best = enough ? std::min(best, cost) : best;
    }
    const Preemption result = choose_swap_victims(engines, missing, kNow, 1s, kLeast);
    double cost = 0;
    for (const ModelId victim : result.victims) {
      cost += preemption_cost(engines[victim.value()], kLeast.ageing);
    }
    if (best == std::numeric_limits<double>::infinity()) {
      ASSERT_EQ(result.outcome, PreemptionOutcome::kNever);
    } else {
      ASSERT_NEAR(cost, best, 1e-9);
    }
    std::reverse(engines.begin(), engines.end());
    ASSERT_EQ(choose_swap_victims(engines, missing, kNow, 1s, kLeast), result);
  }
}

}  // namespace
}  // namespace heddle::policy
