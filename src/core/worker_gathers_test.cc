// WorkerCore whose stages' requests go on in the whole model: a random world in which pieces of KV
// are refused or late, pages lack, requests are cancelled, and models are evicted meanwhile.

#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "core/test_gathers.h"
#include "core/worker_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::kBlock;
using test::kImage;
using test::kStages;
using test::kWhole;
using test::Rig;

/// The stages have computed some of a request, and the whole model is there.
void begin(Rig& rig, std::int64_t prompt = 21, std::uint32_t choices = 1) {
  rig.ask(1, prompt, 40, choices);
  rig.settle_some(8);
  rig.open(kWhole);
  rig.told_to_gather = true;
  rig.gather();
}

TEST(WorkerGathers, ARequestGoesOnInTheWholeModelOnceItsKvIsThere) {
  Rig rig(1);
  begin(rig);
  std::int64_t told = 0;
  for (int round = 0; round < 100 && rig.waiting.empty(); ++round) {
    rig.now += 1ms;
    (void)rig.idle();
    rig.batch_back();
    rig.piece_back(false);
    told = rig.requests.at(RequestId(1)).told.at(0);
  }
  ASSERT_TRUE(rig.waiting.contains(RequestId(1)));
  EXPECT_LT(told, 40) << "long before its end";
  ASSERT_EQ(rig.shadows.size(), 1U) << "what has come is held";
  EXPECT_TRUE(rig.engine.empty());
  rig.submit(RequestId(1));
  EXPECT_TRUE(rig.shadows.empty()) << "it is here: what it will find is as good as free";
  for (int round = 0; round < 100 && rig.requests.contains(RequestId(1)); ++round) {
    rig.now += 1ms;
    (void)rig.idle();
  }
  ASSERT_EQ(rig.moved.size(), 1U);
  EXPECT_EQ(rig.moved[0].model, kWhole);
  EXPECT_LT(rig.moved[0].computed, static_cast<std::uint64_t>(kBlock));
  EXPECT_EQ(static_cast<std::int64_t>(rig.moved[0].tokens + rig.moved[0].computed), 21 + told - 1);
}

TEST(WorkerGathers, ItDecodesWhileItsKvComes) {
  Rig rig(1);
  begin(rig, 80);
  int steps = 0;
  for (int round = 0; round < 4; ++round) {
    rig.now += 1ms;
    // What it asks for is answered first: the first time to learn how long a block is.
    steps += rig.idle() || rig.idle() || rig.idle() ? 1 : 0;
    rig.batch_back();
  }
  EXPECT_EQ(steps, 4);
  EXPECT_FALSE(rig.pieces.empty());
  EXPECT_TRUE(rig.waiting.empty());
}

TEST(WorkerGathers, AllChoicesOfARequestGoTogether) {
  Rig rig(1);
  begin(rig, 21, 3);
  for (int round = 0; round < 100 && rig.waiting.empty(); ++round) {
    rig.now += 1ms;
    (void)rig.idle();
    rig.batch_back();
    rig.piece_back(false);
  }
  ASSERT_TRUE(rig.waiting.contains(RequestId(1)));
  EXPECT_EQ(rig.shadows.size(), 3U);
  EXPECT_TRUE(rig.engine.empty());
}

TEST(WorkerGathers, WhoHasComputedNothingGoesAtOnce) {
  Rig rig(1);
  rig.open(kWhole);
  rig.ask(1, 20, 5);
  rig.told_to_gather = true;
  rig.gather();
  (void)rig.idle();
  EXPECT_TRUE(rig.waiting.contains(RequestId(1)));
  EXPECT_TRUE(rig.shadows.empty());
}

TEST(WorkerGathers, AModelThatIsOnItsWayOutGathersNothing) {
  Rig rig(1);
  rig.ask(1, 20, 40);
  rig.settle_some(4);
  rig.open(kWhole);
  rig.tell(WorkerMessage{
      EvictModel{.model = kWhole, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
  rig.gather();
  rig.there.erase(kWhole);
  rig.tell(ModelClosed{.model = kWhole});
  (void)rig.idle();
  EXPECT_TRUE(rig.shadows.empty());
  EXPECT_TRUE(rig.waiting.empty());
}

TEST(WorkerGathers, WhatIsHeldForARequestThatDoesNotComeIsLetGo) {
  Rig rig(1);
  begin(rig);
  rig.settle();
  ASSERT_EQ(rig.shadows.size(), 1U);
  rig.requests.clear();
  rig.now += 4s;
  (void)rig.idle();
  EXPECT_EQ(rig.shadows.size(), 1U);
  rig.now += 2s;
  (void)rig.idle();
  EXPECT_TRUE(rig.shadows.empty());
  EXPECT_TRUE(rig.moved.empty());
  EXPECT_EQ(rig.core.report().usage.of(ledger::LeaseKind::kKvOwn).held, 0);
}

TEST(WorkerGathers, WhereAStageRefusesItEndsInTheStages) {
  Rig rig(1);
  begin(rig);
  (void)rig.idle();
  ASSERT_FALSE(rig.pieces.empty());
  rig.piece_back(true);
  EXPECT_TRUE(rig.shadows.empty());
  rig.settle();
  EXPECT_TRUE(rig.requests.empty());
  EXPECT_EQ(rig.ended, 1);
  EXPECT_TRUE(rig.moved.empty());
}

TEST(WorkerGathers, NothingComesWhereItHasNoRoomOrNoPrefixesAreCached) {
  for (const auto& [pages, prefix_cache] : {std::pair(25, 50), std::pair(60, 0)}) {
    Rig rig(1, pages, prefix_cache);
    begin(rig, 30);
    rig.settle();
    EXPECT_EQ(rig.ended, 1) << "in the stages";
    EXPECT_TRUE(rig.moved.empty());
  }
}

/// Requests come, end, move and are cancelled; models come and go.
void shake(Rig& rig, std::uint64_t& ids) {
  const std::uint64_t draw = rig.rng.below(100);
  if (draw < 10 && rig.requests.size() < 8) {
    rig.ask(++ids,
            1 + static_cast<std::int64_t>(rig.rng.below(60)),
            1 + static_cast<std::int64_t>(rig.rng.below(30)),
            1 + static_cast<std::uint32_t>(rig.rng.below(2)));
  } else if (draw < 12 && !rig.requests.empty()) {
    auto at = rig.requests.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(rig.rng.below(rig.requests.size())));
    const RequestId id = at->first;
    rig.requests.erase(at);
    rig.waiting.erase(id);
    rig.tell(WorkerMessage{CancelRequest{.request = id}});
  } else if (draw < 14) {
    const ModelId model = rig.rng.below(2) == 0 ? kStages : kWhole;
    if (rig.there.contains(model) && rig.there.size() == 2) {
      rig.evict(model);
      rig.told_to_gather = false;
    }
  } else if (draw < 20) {
    const ModelId model = rig.there.contains(kStages) ? kWhole : kStages;
    if (!rig.there.contains(model) && rig.free() + rig.cached() > kImage) {
      rig.open(model);
    }
  } else if (draw < 26 && rig.there.size() == 2) {
    rig.told_to_gather = true;
    rig.gather();
  } else if (draw < 70) {
    rig.batch_back();
  } else {
    rig.piece_back(rig.rng.below(12) == 0);
  }
}

TEST(WorkerGathers, NothingIsLostAndNoPositionComesTwiceInAnyWorld) {
  std::size_t moved = 0;
  for (std::uint64_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rig rig(seed, 36 + static_cast<std::int64_t>(seed));
    std::uint64_t ids = 0;
    for (int round = 0; round < 2'500; ++round) {
      rig.now += 1ms;
      shake(rig, ids);
      if (rig.rng.below(3) == 0) {
        for (const RequestId id : std::exchange(rig.waiting, {})) {
          rig.submit(id);
        }
      }
      while (rig.idle() && rig.rng.below(3) != 0) {
      }
      if (testing::Test::HasFailure()) {
        return;
      }
    }
    for (int round = 0; round < 3'000 && !rig.requests.empty(); ++round) {
      for (const RequestId id : std::exchange(rig.waiting, {})) {
        rig.submit(id);
      }
      rig.now += 1ms;
      rig.batch_back();
      rig.piece_back(false);
      while (rig.idle()) {
      }
    }
    EXPECT_TRUE(rig.requests.empty()) << "all end";
    EXPECT_GT(rig.ended, 20);
    rig.now += 10s;
    (void)rig.idle();
    EXPECT_TRUE(rig.shadows.empty()) << "all that came is used or let go";
    EXPECT_EQ(rig.core.report().usage.of(ledger::LeaseKind::kKvOwn).held, 0);
    moved += rig.moved.size();
  }
  EXPECT_GT(moved, 50U);
}

}  // namespace
}  // namespace heddle::core
