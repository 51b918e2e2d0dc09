#include "ledger/pool_sum.h"

#include <gtest/gtest.h>

namespace heddle::ledger {
namespace {

TEST(PoolSum, AddsPagesByKind) {
  constexpr auto kKind = static_cast<std::size_t>(LeaseKind::kWeightsActive);
  PoolUsage sum{.total = 8, .free = 3, .version = 7};
  sum.by_kind.at(kKind) = {.reserved = 5, .held = 4};
  PoolUsage other{.total = 4, .free = 2, .version = 9};
  other.by_kind.at(kKind) = {.reserved = 2, .held = 1};
  add(other, sum);
  EXPECT_EQ(sum.total, 12);
  EXPECT_EQ(sum.free, 5);
  EXPECT_EQ(sum.of(LeaseKind::kWeightsActive), (Share{.reserved = 7, .held = 5}));
  EXPECT_EQ(sum.of(LeaseKind::kKvOwn), Share{});
  EXPECT_EQ(sum.version, 7U);
}

}  // namespace
}  // namespace heddle::ledger
