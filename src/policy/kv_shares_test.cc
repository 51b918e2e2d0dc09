#include "policy/kv_shares.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

constexpr std::int64_t kAll = 160;

std::vector<std::int64_t> pages(const std::vector<KvUser>& users, std::int64_t capacity = kAll) {
  std::vector<std::int64_t> all;
  for (const KvShare& share : share_kv(users, capacity)) {
    all.push_back(share.pages);
  }
  return all;
}

TEST(KvShares, GiveBusyEnginesRoomToGrowInAndLeaveTheRestFree) {
  EXPECT_EQ(pages({{.least = 8, .used = 40, .busy = true}, {.least = 8}}),
            (std::vector<std::int64_t>{80, 8}));
  EXPECT_EQ(share_kv(std::vector<KvUser>{{.least = 8, .used = 100, .busy = true}}, kAll)[0].lacks,
            0);
}

TEST(KvShares, LeaveIdleEnginesTheirPrefixesWhileThereIsRoom) {
  EXPECT_EQ(pages({{.least = 8, .used = 70}, {.least = 8, .used = 20, .busy = true}}),
            (std::vector<std::int64_t>{70, 60}));
  EXPECT_EQ(pages({{.least = 8, .used = 70}, {.least = 8, .used = 100, .busy = true}}),
            (std::vector<std::int64_t>{20, 140}));
}

TEST(KvShares, OfOneThatPeaksAreAllThatTheOtherDoesNotNeed) {
  const auto shares = share_kv(
      std::vector<KvUser>{{.least = 8, .used = 8}, {.least = 8, .used = 150, .busy = true}}, kAll);
  EXPECT_EQ(shares[0].pages, 8);
  EXPECT_EQ(shares[1].pages, 152);
  EXPECT_EQ(shares[1].lacks, 150 + 40 - 152);
}

TEST(KvShares, OfTwoThatPeakTogetherAreByWeight) {
  EXPECT_EQ(pages({{.least = 8, .used = 150, .busy = true}, {.least = 8, .used = 9, .busy = true}}),
            (std::vector<std::int64_t>{111, 49}));
  EXPECT_EQ(
      pages({{.least = 8, .used = 150, .busy = true}, {.least = 8, .used = 150, .busy = true}}),
      (std::vector<std::int64_t>{80, 80}));
  EXPECT_EQ(pages({{.least = 0, .used = 150, .busy = true, .weight = 3},
                   {.least = 0, .used = 150, .busy = true}}),
            (std::vector<std::int64_t>{120, 40}));
}

TEST(KvShares, NeverGoBelowWhatAnEngineAlwaysHas) {
  EXPECT_EQ(pages({{.least = 8, .used = 150, .busy = true}, {.least = 8}}, 10),
            (std::vector<std::int64_t>{8, 8}));
  EXPECT_TRUE(pages({}).empty());
}

TEST(KvShares, AreBoundedByWhatThereIsAndByWhatIsWanted) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto capacity = static_cast<std::int64_t>(rng.below(400));
    std::vector<KvUser> users(rng.below(6));
    std::int64_t least = 0;
    for (KvUser& user : users) {
      user = {.least = static_cast<std::int64_t>(rng.below(20)),
              .used = static_cast<std::int64_t>(rng.below(300)),
              .busy = rng.below(2) == 0,
              .weight = 0.25 * static_cast<double>(1 + rng.below(12))};
      least += user.least;
    }
    const std::vector<KvShare> shares = share_kv(users, capacity);
    ASSERT_EQ(shares.size(), users.size());
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < users.size(); ++i) {
      sum += shares[i].pages;
      EXPECT_GE(shares[i].pages, users[i].least);
      EXPECT_LE(shares[i].pages,
                std::max(users[i].least, users[i].used + kv_headroom(users[i].used, capacity)));
      EXPECT_GE(shares[i].lacks, 0);
    }
    EXPECT_LE(sum, std::max(capacity, least));
    const bool lacking = std::any_of(
        shares.begin(), shares.end(), [](const KvShare& share) { return share.lacks > 0; });
    EXPECT_TRUE(!lacking || sum >= capacity);  // Nobody lacks what is free.
  }
}

}  // namespace
}  // namespace heddle::policy
