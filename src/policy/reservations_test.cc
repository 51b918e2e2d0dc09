#include "policy/reservations.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr Instant kSince{100s};

/// Kept since 100 s for one that needs 60 pages and cannot come before 110 s.
constexpr Reservation kKept{
    .model = ModelId(1), .since = kSince, .pages = 60, .from = kSince + 10s};

TEST(Reservations, WhoHasWaitedForLongerPasses) {
  EXPECT_TRUE(may_pass(kKept, {.since = kSince - 1s, .left_pages = -5}, kSince + 3s));
  EXPECT_FALSE(may_pass(kKept, {.since = kSince, .left_pages = -5}, kSince + 3s));
  EXPECT_FALSE(may_pass(kKept, {.since = kSince + 1s, .left_pages = -5}, kSince + 3s));
}

TEST(Reservations, WhereThereIsRoomForBothThereIsNoDelay) {
  const Instant late = kSince + 1h;
  EXPECT_TRUE(may_pass(kKept, {.since = kSince + 1s, .left_pages = 60}, late));
  EXPECT_FALSE(may_pass(kKept, {.since = kSince + 1s, .left_pages = 59}, late));
}

TEST(Reservations, WhoHasLeftByThenPasses) {
  const Passer passer{.since = kSince + 1s, .left_pages = 0, .gone = kSince + 10s};
  EXPECT_TRUE(may_pass(kKept, passer, kSince + 3s));
  Passer stays = passer;
  stays.gone = kSince + 10s + 1ns;
  EXPECT_FALSE(may_pass(kKept, stays, kSince + 3s));
  stays.gone = std::nullopt;
  EXPECT_FALSE(may_pass(kKept, stays, kSince + 3s));
}

TEST(Reservations, EstimatesAreNotBelievedForEver) {
  Reservation kept = kKept;
  kept.from = kSince + 1h;
  const Passer passer{.since = kSince + 20s, .gone = kSince + 40s};
  EXPECT_TRUE(may_pass(kept, passer, kSince + kNobodyPasses - 1ns));
  EXPECT_FALSE(may_pass(kept, passer, kSince + kNobodyPasses));
}

}  // namespace
}  // namespace heddle::policy
