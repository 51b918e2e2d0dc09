#include "policy/lending.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr ModelId kC{3};

TEST(Lending, ModelsLendThatAreWorthLeastForTheirPages) {
  const std::vector<LenderCandidate> idle{{.model = kA, .worth = 2, .pages = 10},
                                          {.model = kB, .worth = 1, .pages = 10},
                                          {.model = kC, .worth = 1, .pages = 2}};
  const Lending lending = choose_lenders(idle, 15, 100, 1);
  EXPECT_EQ(lending.lenders, (std::vector{kB, kA}));
  EXPECT_DOUBLE_EQ(lending.paid, 3);
  EXPECT_FALSE(lending.next);
}

TEST(Lending, OfEqualsTheLeastRecentlyUsedLends) {
  const std::vector<LenderCandidate> idle{{.model = kA, .pages = 4, .last_used = Instant(2s)},
                                          {.model = kB, .pages = 4, .last_used = Instant(1s)}};
  EXPECT_EQ(choose_lenders(idle, 1, 0, 1).lenders, std::vector{kB});
}

TEST(Lending, NoModelLendsBeforeItsWorthWasWaitedFor) {
  const std::vector<LenderCandidate> idle{{.model = kA, .worth = 3, .pages = 4}};
  const Lending early = choose_lenders(idle, 1, 1, 4);
  EXPECT_TRUE(early.lenders.empty());
  EXPECT_EQ(early.next, Duration(500ms));
  EXPECT_EQ(choose_lenders(idle, 1, 3, 4).lenders, std::vector{kA});
}

TEST(Lending, WhatOneLenderWasPaidForIsNotPaidTwice) {
  const std::vector<LenderCandidate> idle{{.model = kA, .worth = 2, .pages = 4},
                                          {.model = kB, .worth = 3, .pages = 4}};
  const Lending lending = choose_lenders(idle, 8, 4, 1);
  EXPECT_EQ(lending.lenders, std::vector{kA});
  EXPECT_EQ(lending.next, Duration(1s));
}

TEST(Lending, WaitsAtLeastAMillisecond) {
  EXPECT_EQ(until_paid(1, 1, 3), Duration(1ms));
  EXPECT_EQ(until_paid(7, 1, 3), Duration(2s));
}

TEST(Lending, RecallsAsManyAsFindRoom) {
  EXPECT_EQ(recallable(4, 10, 9, 32), 3);  // Each lacks 3 pages, rounded up.
  EXPECT_EQ(recallable(4, 10, 90, 2), 2);
  EXPECT_EQ(recallable(4, 0, 2, 32), 2);  // At least one page each.
  EXPECT_EQ(recallable(4, 10, 2, 32), 0);
}

}  // namespace
}  // namespace heddle::policy
