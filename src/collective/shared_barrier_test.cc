#include "collective/shared_barrier.h"

#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::collective {
namespace {

constexpr std::int64_t kRanks = 3;
constexpr int kRounds = 500;

/// Runs `body(rank)` on a thread for each rank.
template <class Body>
void on_ranks(Body&& body) {
  std::vector<std::thread> threads;
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&body, rank] { body(rank); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

class SharedBarrierTest : public testing::TestWithParam<int> {
 protected:
  SharedBarrier barrier_{};
};

// Were somebody to pass too early, it would read what was written a round before.
TEST_P(SharedBarrierTest, WhatWasWrittenBeforeIsSeenAfter) {
  std::array<std::array<int, kRanks>, 2> written{};
  on_ranks([&](std::int64_t rank) {
    for (int round = 1; round <= kRounds; ++round) {
      EXPECT_EQ(barrier_.phase(), static_cast<std::uint32_t>(round) - 1);
      auto& now = written.at(static_cast<std::size_t>(round % 2));
      now.at(static_cast<std::size_t>(rank)) = round;
      ASSERT_TRUE(barrier_.arrive_and_wait(kRanks, GetParam()));
      for (const int value : now) {
        ASSERT_EQ(value, round);
      }
    }
  });
  EXPECT_EQ(barrier_.phase(), static_cast<std::uint32_t>(kRounds));
}

TEST_P(SharedBarrierTest, AbandoningWakesWhoWaits) {
  on_ranks([&](std::int64_t rank) {
    if (rank == 0) {  // It never arrives, so that nobody can pass, whoever comes first.
      barrier_.abandon();
      return;
    }
    const Result<void> met = barrier_.arrive_and_wait(kRanks, GetParam());
    ASSERT_FALSE(met);
    EXPECT_EQ(met.error().code, Code::kUnavailable);
  });
  EXPECT_FALSE(barrier_.arrive_and_wait(kRanks, GetParam())) << "for good";
}

TEST_P(SharedBarrierTest, OneRankNeedNotWait) {
  EXPECT_TRUE(barrier_.arrive_and_wait(1, GetParam()));
  EXPECT_EQ(barrier_.phase(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Spins, SharedBarrierTest, testing::Values(0, 200), [](const auto& info) {
  return info.param == 0 ? "Asleep" : "Looking";
});

}  // namespace
}  // namespace heddle::collective
