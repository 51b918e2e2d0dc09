#include "policy/expert_turns.h"

#include <initializer_list>
#include <map>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

/// How many of the experts that a pass takes are there.
int take_pass(ExpertTurns& turns, std::initializer_list<std::int64_t> experts) {
  int there = 0;
  turns.begin_pass();
  for (const std::int64_t expert : experts) {
    there += turns.take(expert).there ? 1 : 0;
  }
  return there;
}

TEST(ExpertTurns, GivesFreeSlotsFirst) {
  ExpertTurns turns(4, 2);
  EXPECT_EQ(turns.resident(), 0);
  EXPECT_FALSE(turns.take(3).there);
  const ExpertTurns::Turn second = turns.take(1);
  EXPECT_FALSE(second.there);
  EXPECT_EQ(second.slot, 1);
  EXPECT_EQ(turns.resident(), 2);
  turns.begin_pass();
  const ExpertTurns::Turn again = turns.take(3);
  EXPECT_TRUE(again.there);
  EXPECT_EQ(again.slot, 0);
}

TEST(ExpertTurns, TheOneThatFewestPassesTookGivesWay) {
  ExpertTurns turns(4, 2);
  take_pass(turns, {0, 1});
  EXPECT_EQ(take_pass(turns, {0}), 1);
  turns.begin_pass();
  const ExpertTurns::Turn third = turns.take(2);
  EXPECT_FALSE(third.there);
  EXPECT_EQ(third.slot, 1) << "one pass took expert 1, two took expert 0";
  EXPECT_EQ(take_pass(turns, {0}), 1);
  EXPECT_EQ(take_pass(turns, {1}), 0);
}

TEST(ExpertTurns, WhatWasLongAgoCountsLess) {
  ExpertTurns turns(3, 2);
  for (int i = 0; i < 20; ++i) {
    take_pass(turns, {0});
  }
  for (int i = 0; i < 400; ++i) {  // Several half-lives.
    take_pass(turns, {1});
  }
  for (int i = 0; i < 3; ++i) {
    take_pass(turns, {2});
  }
  EXPECT_EQ(take_pass(turns, {1}), 1);
  EXPECT_EQ(take_pass(turns, {0}), 0) << "passes of long ago alone took it";
}

TEST(ExpertTurns, LayersThatComeRoundInTurnKeepAllSlotsButOne) {
  ExpertTurns turns(10, 5);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(take_pass(turns, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), i == 0 ? 0 : 4);
  }
}

TEST(ExpertTurns, CountsStayFiniteAndSlotsAreOfOneExpertEach) {
  const std::uint64_t seed = 20261128;
  SCOPED_TRACE(seed);
  Rng rng(seed);
  ExpertTurns turns(3, 2);
  std::map<std::int64_t, std::int64_t> owner;  // By slot.
  for (int i = 0; i < 50'000; ++i) {           // Weights double every 64 passes.
    const auto expert = static_cast<std::int64_t>(rng.below(3));
    turns.begin_pass();
    const ExpertTurns::Turn turn = turns.take(expert);
    ASSERT_LT(turn.slot, 2);
    const auto found = owner.find(turn.slot);
    ASSERT_EQ(turn.there, found != owner.end() && found->second == expert);
    owner[turn.slot] = expert;
  }
  EXPECT_EQ(turns.resident(), 2);
}

}  // namespace
}  // namespace heddle::policy
