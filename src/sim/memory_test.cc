#include "sim/memory.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

constexpr PoolId kGpu{0};

TEST(Memory, CountsPageSecondsByWhatThePagesAreFor) {
  Memory memory;
  memory.add_pool(kGpu, 100);
  const ledger::Demand demand{.pool = kGpu, .pages = 40};
  const LeaseId lease = memory.reserve(
      Instant(0s), LeaseKind::kWeightsWarm, {.model = ModelId(1)}, std::span(&demand, 1));
  ASSERT_NE(lease, LeaseId(0));
  EXPECT_EQ(memory.free(kGpu), 60);
  EXPECT_TRUE(memory.transfer(Instant(10s), lease, LeaseKind::kWeightsActive));
  EXPECT_TRUE(memory.grow(Instant(20s), lease, kGpu, 10));
  memory.shrink(Instant(30s), lease, kGpu, 30);
  memory.release(Instant(40s), lease);
  EXPECT_EQ(memory.free(kGpu), 100);
  EXPECT_DOUBLE_EQ(memory.page_seconds(Instant(99s), LeaseKind::kWeightsWarm), 400);
  EXPECT_DOUBLE_EQ(memory.page_seconds(Instant(99s), LeaseKind::kWeightsActive),
                   40 * 10 + 50 * 10 + 20 * 10);
}

TEST(Memory, RefusesWhatDoesNotFitAndChangesNothing) {
  Memory memory;
  memory.add_pool(kGpu, 100);
  const ledger::Demand demand{.pool = kGpu, .pages = 101};
  EXPECT_EQ(memory.reserve(Instant(0s), LeaseKind::kWeightsActive, {}, std::span(&demand, 1)),
            LeaseId(0));
  const ledger::Demand fits{.pool = kGpu, .pages = 100};
  const LeaseId lease =
      memory.reserve(Instant(0s), LeaseKind::kWeightsActive, {}, std::span(&fits, 1));
  EXPECT_FALSE(memory.grow(Instant(1s), lease, kGpu, 1));
  EXPECT_EQ(memory.reserved(lease, kGpu), 100);
  memory.ledger().check_invariants();
}

}  // namespace
}  // namespace heddle::sim
