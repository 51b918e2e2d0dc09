#include "policy/placement.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Instant kNow{10s};
constexpr PlacementOptions kOptions{.drain_after = 2s};

ResidentView resident(std::uint64_t model, std::int64_t pages, std::int64_t queue, Duration used) {
  return {.model = ModelId(model), .pages = pages, .queue = queue, .last_used = Instant{used}};
}

PlacementDevice device(std::uint64_t id, std::int64_t free, std::vector<ResidentView> residents) {
  return {.id = DeviceId(id),
          .need_pages = 50,
          .pages = 100,
          .free_pages = free,
          .available = true,
          .residents = std::move(residents)};
}

Placement choose(std::vector<PlacementDevice> devices, Duration waited = 0s) {
  return choose_placement(devices, kNow, kNow - waited, kOptions);
}

TEST(ChoosePlacement, PrefersServingThenFreePagesThenIdleVictims) {
  PlacementDevice serving = device(3, 0, {});
  serving.serving = true;
  const PlacementDevice roomy = device(2, 60, {});
  const PlacementDevice idle = device(1, 0, {resident(7, 80, 0, 1s)});
  EXPECT_EQ(choose({idle, roomy, serving}).outcome, PlacementOutcome::kServe);
  EXPECT_EQ(choose({idle, roomy}).device, DeviceId(2));
  const Placement evicting = choose({idle});
  EXPECT_EQ(evicting.outcome, PlacementOutcome::kLoad);
  EXPECT_EQ(evicting.reason, PlacementReason::kIdleVictims);
  EXPECT_EQ(evicting.victims, std::vector{ModelId(7)});
}

TEST(ChoosePlacement, EvictsTheLeastRecentlyUsedFirstAndNoMoreThanNeeded) {
  const Placement placement =
      choose({device(1, 10, {resident(1, 40, 0, 5s), resident(2, 40, 0, 3s)})});
  EXPECT_EQ(placement.victims, std::vector{ModelId(2)});
}

TEST(ChoosePlacement, OneRightSizedModelSparesThreeSmallOnes) {
  const Placement placement = choose({device(1,
                                             0,
                                             {resident(1, 10, 0, 1s),
                                              resident(2, 10, 0, 2s),
                                              resident(3, 10, 0, 3s),
                                              resident(4, 50, 0, 4s)})});
  EXPECT_EQ(placement.victims, std::vector{ModelId(4)});
}

TEST(ChoosePlacement, NeverTakesPinnedOnesOrOnesInTransition) {
  ResidentView pinned = resident(1, 60, 0, 1s);
  pinned.pinned = true;
  ResidentView moving = resident(2, 40, 0, 1s);
  moving.in_transition = true;
  EXPECT_EQ(choose({device(1, 0, {pinned, moving})}).reason, PlacementReason::kPinned);
  pinned.pages = 40;
  const Placement placement = choose({device(1, 20, {pinned, moving})}, 1h);
  EXPECT_EQ(placement.outcome, PlacementOutcome::kWait);
  EXPECT_EQ(placement.reason, PlacementReason::kTransition);
}

TEST(ChoosePlacement, BusyModelsGoByDrainingOnceFairnessWantsIt) {
  const std::vector<PlacementDevice> devices = {device(1, 0, {resident(1, 60, 3, 9s)})};
  const Placement early = choose(devices, 1s);
  EXPECT_EQ(early.outcome, PlacementOutcome::kWait);
  EXPECT_EQ(early.reason, PlacementReason::kFairness);
  EXPECT_EQ(early.retry_at, kNow + 1s);
  const Placement late = choose(devices, 2s);
  EXPECT_EQ(late.outcome, PlacementOutcome::kDrain);
  EXPECT_EQ(late.victims, std::vector{ModelId(1)});
}

TEST(ChoosePlacement, BusyModelsStayForTheirMinimumResidence) {
  ResidentView fresh = resident(1, 60, 3, 9s);
  fresh.serving_since = kNow - 1s;
  fresh.min_residence = 5s;
  const Placement placement = choose({device(1, 0, {fresh})}, 1h);
  EXPECT_EQ(placement.reason, PlacementReason::kResidence);
  EXPECT_EQ(placement.retry_at, kNow + 4s);
  fresh.queue = 0;  // Idle ones go at once.
  EXPECT_EQ(choose({device(1, 0, {fresh})}).outcome, PlacementOutcome::kLoad);
}

TEST(ChoosePlacement, ShortestQueueGoesFirst) {
  const Placement placement =
      choose({device(1, 0, {resident(1, 60, 5, 1s), resident(2, 60, 2, 9s)})}, 1h);
  EXPECT_EQ(placement.victims, std::vector{ModelId(2)});
}

TEST(ChoosePlacement, WhoIsDisplacedGoesThoughThereIsRoomOnceItHasStayed) {
  ResidentView displaced = resident(1, 20, 0, 9s);
  displaced.displaced = true;
  displaced.swap = 1s;
  displaced.serving_since = kNow - 5s;
  displaced.min_residence = 6s;
  const Placement early = choose({device(1, 80, {displaced})}, 3s);
  EXPECT_EQ(early.outcome, PlacementOutcome::kWait);
  EXPECT_EQ(early.retry_at, displaced.serving_since + 6s);
  displaced.min_residence = 4s;
  const Placement late = choose({device(1, 80, {displaced})}, 3s);
  EXPECT_EQ(late.outcome, PlacementOutcome::kLoad);
  EXPECT_EQ(late.victims, std::vector{ModelId(1)});
}

TEST(ChoosePlacement, WhoIsDisplacedAndComesOrGoesIsWaitedFor) {
  ResidentView displaced = resident(1, 20, 0, 9s);
  displaced.displaced = true;
  displaced.in_transition = true;
  EXPECT_EQ(choose({device(1, 80, {displaced})}, 3s).reason, PlacementReason::kTransition);
}

TEST(ChoosePlacement, WhatIsWorthLeastForItsPagesGoesFirst) {
  ResidentView cheap = resident(1, 40, 0, 9s);  // Used last, and not expected again.
  cheap.worth = 0.1;
  ResidentView dear = resident(2, 40, 0, 1s);
  dear.worth = 4;
  EXPECT_EQ(choose({device(1, 10, {cheap, dear})}).victims, std::vector{ModelId(1)});
  cheap.pages = 1;  // Now it has little to give for what it is worth.
  EXPECT_EQ(choose({device(1, 10, {cheap, dear})}).victims, std::vector{ModelId(2)});
}

TEST(ChoosePlacement, GoesWhereLeastIsLostThenWhereKvPressureIsLeast) {
  ResidentView worthless = resident(1, 80, 0, 1s);
  worthless.worth = 0.001;
  ResidentView dear = resident(2, 80, 0, 1s);
  dear.worth = 5;
  PlacementDevice busy = device(1, 60, {});
  busy.pressure = 9;
  PlacementDevice quiet = device(2, 0, {worthless});
  quiet.pressure = 1;
  PlacementDevice quietest = device(3, 0, {dear});
  quietest.pressure = 0.5;
  const std::vector<PlacementDevice> devices{busy, quiet, quietest};
  const auto where = [&](Duration load) {
    return choose_placement(devices, kNow, kNow, {.drain_after = 2s, .load = load}).device;
  };
  EXPECT_EQ(where(2s), DeviceId(2)) << "what is worth nothing is as good as free";
  EXPECT_EQ(where(0s), DeviceId(1)) << "without a load time free pages come first";
  EXPECT_EQ(where(100s), DeviceId(3)) << "a long load makes the place matter more";
}

TEST(ChoosePlacement, WhatIsMissingOfTheModelCountsAsWhatIsLost) {
  ResidentView other = resident(1, 80, 0, 1s);
  other.worth = 0.5;
  PlacementDevice empty = device(1, 100, {});
  empty.missing = 2s;
  PlacementDevice half = device(2, 20, {other});
  half.missing = 1s;
  const auto where = [&](Duration load) {
    return choose_placement({{empty, half}}, kNow, kNow, {.drain_after = 2s, .load = load}).device;
  };
  EXPECT_EQ(where(2s), DeviceId(2)) << "half a load and half a second lost against a load";
  EXPECT_EQ(where(0s), DeviceId(2)) << "where nothing is known of worth, it is what counts";
  other.worth = 1.5;
  half.residents = {other};
  EXPECT_EQ(where(2s), DeviceId(1));
}

// A part of a model that needs all its devices to itself is of no use beside one that runs.
TEST(ChoosePlacement, AvoidsWhatCannotRunBesideTheModel) {
  ResidentView part = resident(1, 10, 0, 1s);
  part.worth = 1;
  const PlacementDevice shared = device(1, 90, {part});
  part.runs_alone = true;
  const PlacementDevice kept = device(2, 90, {part});
  const auto where = [&](Duration load) {
    return choose_placement({{kept, shared}}, kNow, kNow, {.load = load}).device;
  };
  EXPECT_EQ(where(2s), DeviceId(1));
  const PlacementDevice full = device(1, 0, {resident(2, 90, 0, 1s)});
  EXPECT_EQ(choose_placement({{kept, full}}, kNow, kNow, {.load = 2s}).device, DeviceId(1));
}

TEST(ChoosePlacement, SaysWhenAModelCanNeverFit) {
  PlacementDevice small = device(1, 100, {});
  small.need_pages = 101;
  EXPECT_EQ(choose({small}).outcome, PlacementOutcome::kNever);
  EXPECT_EQ(choose({small}).reason, PlacementReason::kTooLarge);
  EXPECT_EQ(choose({}).outcome, PlacementOutcome::kNever);
}

// Properties: independent of order; victims suffice, and none of them is superfluous or protected.
TEST(ChoosePlacement, KeepsItsPromisesOnRandomInput) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<PlacementDevice> devices;
    for (std::uint64_t d = 0; d < 1 + rng.below(3); ++d) {
      std::vector<ResidentView> residents;
      std::int64_t free = 100;
      for (std::uint64_t r = 0; r < rng.below(6); ++r) {
        ResidentView view = resident(1 + r,
                                     1 + static_cast<std::int64_t>(rng.below(20)),
                                     static_cast<std::int64_t>(rng.below(3)),
                                     1s * rng.below(4));
        view.pinned = rng.below(5) == 0;
        view.in_transition = rng.below(5) == 0;
        free -= view.pages;
        residents.push_back(view);
      }
      devices.push_back(device(d, free, residents));
      devices.back().available = rng.below(6) != 0;
    }
    const Duration waited = 1s * rng.below(4);
    const Placement placement = choose(devices, waited);

    for (const PlacementDevice& chosen : devices) {
      const bool takes = placement.outcome == PlacementOutcome::kLoad ||
                         placement.outcome == PlacementOutcome::kDrain;
      if (!takes || chosen.id != placement.device) {
        continue;
      }
      ASSERT_TRUE(chosen.available);
      std::int64_t available = chosen.free_pages;
      std::int64_t smallest = chosen.pages;
      for (const ModelId victim : placement.victims) {
        const auto view = std::find_if(chosen.residents.begin(),
                                       chosen.residents.end(),
                                       [&](const auto& r) { return r.model == victim; });
        ASSERT_NE(view, chosen.residents.end());
        ASSERT_FALSE(view->pinned || view->in_transition);
        ASSERT_TRUE(view->queue == 0 || placement.outcome == PlacementOutcome::kDrain);
        ASSERT_TRUE(view->queue == 0 || waited >= kOptions.drain_after);
        available += view->pages;
        smallest = std::min(smallest, view->pages);
      }
      ASSERT_GE(available, chosen.need_pages);
      ASSERT_TRUE(placement.victims.empty() || available - smallest < chosen.need_pages);
    }
    std::reverse(devices.begin(), devices.end());
    for (PlacementDevice& d : devices) {
      std::reverse(d.residents.begin(), d.residents.end());
    }
    ASSERT_EQ(choose(devices, waited), placement);
  }
}

}  // namespace
}  // namespace heddle::policy
