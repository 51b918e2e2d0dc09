#include "gateway/kv_use.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

core::DeviceStatus device(std::int64_t free, std::int64_t cached) {
  core::DeviceStatus status;
  status.usage.free = free;
  status.usage.by_kind[static_cast<std::size_t>(ledger::LeaseKind::kKvCached)].held = cached;
  return status;
}

TEST(KvUse, IsWhatAModelHasOfWhatItCouldHave) {
  core::DeviceStatus cpu = device(10, 20);
  cpu.residents = {{.model = "a", .kv_pages = 10}, {.model = "b", .kv_pages = 90}};
  const auto use = kv_use({cpu});
  EXPECT_DOUBLE_EQ(use.at("a").fraction(), 10.0 / 40);
  EXPECT_DOUBLE_EQ(use.at("b").fraction(), 90.0 / 120);
}

TEST(KvUse, CountsAllDevicesOfAModel) {
  core::DeviceStatus full = device(0, 0);
  core::DeviceStatus empty = device(30, 0);
  full.residents = {{.model = "a", .kv_pages = 30}};
  empty.residents = {{.model = "a", .kv_pages = 0}};
  EXPECT_DOUBLE_EQ(kv_use({full, empty}).at("a").fraction(), 0.5);
}

TEST(KvUse, IsFullWhereThereIsNothingToHave) {
  core::DeviceStatus taken = device(0, 0);
  taken.residents = {{.model = "a"}};
  EXPECT_DOUBLE_EQ(kv_use({taken}).at("a").fraction(), 1);
}

TEST(KvUse, IsUnknownOfEnginesAndOfModelsThatAreNowhere) {
  core::DeviceStatus cpu = device(10, 0);
  cpu.residents = {{.model = "engine", .external = true}};
  EXPECT_TRUE(kv_use({cpu}).empty());
}

TEST(KvBlocks, AreThePagesThatWeightsLeave) {
  // 5 MB of weights take three pages of 2 MiB; a page holds 16 tokens of 128 KiB.
  EXPECT_EQ(kv_blocks(128U << 10U, 5'000'000, 2U << 20U, 100),
            (KvBlocks{.tokens = 16, .count = 97}));
}

TEST(KvBlocks, HaveAsManyPagesAsATokenNeeds) {
  EXPECT_EQ(kv_blocks(144, 0, 64, 10), (KvBlocks{.tokens = 1, .count = 3}));
}

TEST(KvBlocks, AreNoneWhereWeightsFillTheDevice) {
  EXPECT_EQ(kv_blocks(16, 640, 64, 10), std::nullopt);
  EXPECT_EQ(kv_blocks(16, 6400, 64, 10), std::nullopt);
  EXPECT_EQ(kv_blocks(0, 0, 64, 10), std::nullopt);
  EXPECT_EQ(kv_blocks(16, 0, 64, 0), std::nullopt);
}

}  // namespace
}  // namespace heddle::gateway
