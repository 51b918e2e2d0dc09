#include "sim/planes/reclaim.h"

#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::sim {
namespace {

// M = 320 pages, C = 32: 10 pages a request.
GraceView grace(std::int64_t requests, std::int64_t used) {
  return {.kv_pages = 320, .kv_pages_used = used, .requests = requests, .batch = 32};
}

TEST(KvReserve, IsTheGreaterPartOfEquation1) {
  EXPECT_EQ(kv_reserve(grace(8, 40), ReserveVariant::kPaper), 80);    // 320 * 8 / 32 > 40 + 10.
  EXPECT_EQ(kv_reserve(grace(8, 100), ReserveVariant::kPaper), 110);  // Long requests: K + M / C.
  EXPECT_EQ(kv_reserve(grace(32, 10), ReserveVariant::kPaper), 320);
  EXPECT_EQ(kv_reserve(grace(31, 315), ReserveVariant::kPaper), 320);  // Never more than M.
  EXPECT_EQ(kv_reserve(grace(0, 0), ReserveVariant::kPaper), 10);
  EXPECT_EQ(kv_reserve({.kv_pages = 7, .requests = 1, .batch = 2}, ReserveVariant::kPaper), 4);
}

TEST(KvReserve, TheArtifactKeepsThatMuchFree) {
  EXPECT_EQ(kv_reserve(grace(8, 40), ReserveVariant::kArtifact), 120);
  EXPECT_EQ(kv_reserve(grace(31, 200), ReserveVariant::kArtifact), 320);
}

TEST(KvReserve, NoBatchOrNoCacheKeepsAll) {
  GraceView view = grace(1, 1);
  view.batch = 0;
  EXPECT_EQ(kv_reserve(view, ReserveVariant::kPaper), 320);
  EXPECT_EQ(kv_reserve({.batch = 32}, ReserveVariant::kPaper), 0);
}

// Property: what is kept is never less than what is used, nor more than there was.
TEST(KvReserve, KeepsUsedPagesAndNoMoreThanThereWere) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const auto m = static_cast<std::int64_t>(rng.below(1000));
    GraceView view{.kv_pages = m,
                   .kv_pages_used = static_cast<std::int64_t>(rng.below(1000)) % (m + 1),
                   .requests = static_cast<std::int64_t>(rng.below(40)),
                   .batch = static_cast<std::int64_t>(rng.below(40))};
    for (; view.requests >= 0; --view.requests) {
      for (const ReserveVariant variant : {ReserveVariant::kPaper, ReserveVariant::kArtifact}) {
        const std::int64_t kept = kv_reserve(view, variant);
        ASSERT_GE(kept, view.kv_pages_used);
        ASSERT_LE(kept, m);
      }
      view.kv_pages_used -= view.kv_pages_used / 3;
    }
  }
}

}  // namespace
}  // namespace heddle::sim
