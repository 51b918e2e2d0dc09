#include "policy/spread.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

using Loads = std::vector<InstanceLoad>;

constexpr std::int64_t kBatch = 4;

InstanceLoad serving(std::int64_t in_flight, std::int64_t late = 0) {
  return {.in_flight = in_flight, .late = late, .serves = true, .complete = true, .open = true};
}

// ---- movable ----

TEST(Spreading, WhatWillBeLateGoesWhereThereIsTime) {
  EXPECT_EQ(movable(Loads{serving(4, 2), serving(0)}, 0, kBatch), 2);
  EXPECT_EQ(movable(Loads{serving(4, 1), serving(0)}, 0, kBatch), 1) << "no others";
  EXPECT_EQ(movable(Loads{serving(4, 4), serving(2)}, 0, kBatch), 1) << "then both are alike";
  EXPECT_EQ(movable(Loads{serving(4, 4), serving(4)}, 0, kBatch), 0);
}

TEST(Spreading, WhatIsMoreThanADeviceShouldBearGoesThoughNothingIsLate) {
  EXPECT_EQ(movable(Loads{serving(6), serving(0)}, 0, kBatch), 2);
  EXPECT_EQ(movable(Loads{serving(4), serving(0)}, 0, kBatch), 0);
  EXPECT_EQ(movable(Loads{serving(20), serving(0)}, 0, kBatch), 4) << "no more than it should bear";
  EXPECT_EQ(movable(Loads{serving(20), serving(0), serving(1)}, 0, kBatch), 7);
}

TEST(Spreading, OnlyWholeInstancesThatNobodyWaitsForTakeMore) {
  Loads loads{serving(6), serving(0)};
  loads[1].open = false;
  EXPECT_EQ(movable(loads, 0, kBatch), 0);
  loads[1] = serving(0);
  loads[1].complete = false;
  EXPECT_EQ(movable(loads, 0, kBatch), 0);
  loads[1] = serving(0);
  loads[1].serves = false;
  EXPECT_EQ(movable(loads, 0, kBatch), 0);
  loads = {serving(6), serving(0)};
  loads[0].serves = false;
  EXPECT_EQ(movable(loads, 0, kBatch), 0) << "it is sent nothing, and what it has stays";
}

// ---- unborne ----

TEST(Spreading, AModelThatIsNowhereLacksAPlaceAndNotOneMore) {
  EXPECT_EQ(unborne(Loads{}, 9, kBatch), 0);
}

TEST(Spreading, LateRequestsLackAnInstanceUnlessOneComesForThem) {
  EXPECT_EQ(unborne(Loads{serving(3, 2)}, 3, kBatch), 2);
  InstanceLoad coming;
  EXPECT_EQ(unborne(Loads{serving(3, 2), coming}, 3, kBatch), 0);
  EXPECT_EQ(unborne(Loads{serving(7, 6), coming}, 7, kBatch), 2) << "it bears four";
  coming = serving(0);
  coming.complete = false;
  EXPECT_EQ(unborne(Loads{serving(7, 6), coming}, 7, kBatch), 2);
}

TEST(Spreading, SoDoRequestsThatAreMoreThanAllShouldBear) {
  EXPECT_EQ(unborne(Loads{serving(6)}, 6, kBatch), 2);
  EXPECT_EQ(unborne(Loads{serving(4), serving(4)}, 8, kBatch), 0);
  EXPECT_EQ(unborne(Loads{serving(4), serving(4)}, 9, kBatch), 1);
}

TEST(Spread, OneMoreIsWorthItsLoadWhereItComesSoonerByMoreThanThatAndWhatIsLost) {
  EXPECT_TRUE(pays_beside(30s, 1s, 1s, 0));
  EXPECT_FALSE(pays_beside(1600ms, 1400ms, 1400ms, 0)) << "in time or not, it is no sooner";
  EXPECT_FALSE(pays_beside(30s, 1s, 1s, 28)) << "others lose as much";
}

}  // namespace
}  // namespace heddle::policy
