#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/manager_core.h"
#include "core/manager/test_bench.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::Bench;
using test::kA;
using test::kB;
using test::kC;

constexpr ModelId kSharded{4};
constexpr ModelId kShard{5};
constexpr std::int64_t kPages = 8;  // Of each shard; a device has 20.

/// The sharded model runs for half of every window, B on the way between; at the end all are idle,
/// and the next window is three seconds away.
void learn(Bench& bench, int windows) {
  for (int i = 0; i < windows; ++i) {
    bench.serve(kSharded, 5s);
    bench.serve(kA, 1s);
    bench.serve(kB, 1s);
    bench.wait(3s);
  }
}

bool whole_group(Bench& bench, std::uint64_t leader) {
  return bench.there(kSharded, leader) && bench.there(kShard, leader + 1);
}

std::int64_t count_loads(const Bench& bench, ModelId model) {
  return std::count_if(bench.said.begin(), bench.said.end(), [model](const auto& command) {
    const auto* load = std::get_if<LoadOn>(&command);
    return load != nullptr && load->model == model;
  });
}

// A and B take the only block away in every window; the group is there again before it is asked.
TEST(ManagerShards, AGroupIsLoadedBeforeAnybodyAsksAndStartsWithoutALoad) {
  Bench bench(2, {.prewarm = true, .value = true});
  bench.add_sharded(kSharded, kShard, kPages);
  learn(bench, 8);
  EXPECT_GT(bench.status(kSharded).demand.expected_mean, 0.4);
  EXPECT_GT(bench.loaded(kSharded, LoadReason::kForecast), 0U);
  EXPECT_TRUE(whole_group(bench, 0));
  const std::uint64_t hits = bench.starts(kSharded, StartKind::kHit);
  const std::int64_t loads = count_loads(bench, kSharded) + count_loads(bench, kShard);
  const RequestId id = bench.arrive(kSharded);
  EXPECT_EQ(bench.sent[DeviceId(0)].back(), id) << "at once";
  EXPECT_EQ(bench.starts(kSharded, StartKind::kHit), hits + 1);
  EXPECT_EQ(count_loads(bench, kSharded) + count_loads(bench, kShard), loads);
  EXPECT_EQ(bench.status(kSharded).peers, std::vector{DeviceId(1)});
  const Decision load = bench.decisions(DecisionKind::kLoad).back();
  EXPECT_EQ(load.model, kSharded);
  EXPECT_EQ(load.device, DeviceId(0));
  EXPECT_NE(load.why.find("d0+d1"), std::string::npos) << "the devices that it has to itself";
  EXPECT_EQ(bench.decisions(DecisionKind::kPrewarm).back().model, kSharded);
}

TEST(ManagerShards, OthersRunBesideShardsThatNobodyAskedForAndLeaveWhenSomebodyDoes) {
  Bench bench(2, {.prewarm = true, .value = true});
  bench.add_sharded(kSharded, kShard, kPages);
  learn(bench, 8);
  ASSERT_TRUE(whole_group(bench, 0));
  const RequestId beside = bench.arrive(kA);  // 20 pages: 9 for the shard, 9 for A.
  EXPECT_TRUE(whole_group(bench, 0));
  EXPECT_TRUE(bench.there(kA, 0) || bench.there(kA, 1));
  bench.wait(100ms);
  bench.finish(beside);
  const RequestId id = bench.arrive(kSharded);
  EXPECT_FALSE(bench.there(kA, 0) || bench.there(kA, 1));
  EXPECT_EQ(bench.sent[DeviceId(0)].back(), id);
}

TEST(ManagerShards, WhatIsMissingOfAGroupIsAllThatIsLoaded) {
  Bench bench(2, {.prewarm = true, .value = true});
  bench.add_sharded(kSharded, kShard, kPages);
  learn(bench, 8);
  ASSERT_TRUE(whole_group(bench, 0));
  // Both devices are wanted for more than there is beside the shards; one shard goes for it.
  const RequestId a = bench.arrive(kA);
  const RequestId b = bench.arrive(kB);
  const RequestId c = bench.arrive(kC);
  bench.wait(100ms);
  ASSERT_NE(bench.there(kSharded, 0), bench.there(kShard, 1));
  for (const RequestId id : {a, b, c}) {
    bench.finish(id);
  }
  const ModelId lost = bench.there(kSharded, 0) ? kShard : kSharded;
  const ModelId kept = bench.there(kSharded, 0) ? kSharded : kShard;
  const std::int64_t loads = count_loads(bench, kept);
  const std::int64_t of_lost = count_loads(bench, lost);
  const std::uint64_t attaches = bench.starts(kSharded, StartKind::kAttach);
  bench.arrive(kSharded);
  EXPECT_EQ(bench.starts(kSharded, StartKind::kAttach), attaches + 1);
  EXPECT_EQ(count_loads(bench, kept), loads);
  EXPECT_EQ(count_loads(bench, lost), of_lost + 1);
}

// Nobody asks again: shards leave one by one, as room is wanted, and count as brought in vain.
TEST(ManagerShards, WhatWasPrewarmedForNobodyIsCounted) {
  Bench bench(2, {.prewarm = true, .value = true});
  bench.add_sharded(kSharded, kShard, kPages);
  learn(bench, 8);
  ASSERT_TRUE(whole_group(bench, 0));
  EXPECT_EQ(bench.status(kSharded).demand.wasted_bytes, 0U);
  for (const ModelId model : {kA, kB, kC}) {
    bench.arrive(model);
  }
  bench.wait(100ms);
  EXPECT_EQ(bench.status(kSharded).demand.wasted_bytes, kPages * test::kPageBytes);
}

TEST(ManagerShards, AModelOnOneDeviceKeepsAwayFromAGroupOfWorth) {
  Bench bench(4, {.prewarm = true, .value = true});
  bench.add_sharded(kSharded, kShard, kPages);
  for (int i = 0; i < 8; ++i) {
    bench.serve(kSharded, 5s);
    bench.wait(5s);
  }
  bench.die();
  bench.wait(4s);
  ASSERT_TRUE(whole_group(bench, 0) || whole_group(bench, 2));
  const std::uint64_t free = whole_group(bench, 0) ? 2 : 0;
  bench.arrive(kA);
  EXPECT_TRUE(bench.there(kA, free) || bench.there(kA, free + 1));
}

TEST(ManagerShards, AShardWhoseWorkerDiesIsLoadedAgainAndTheOthersStay) {
  Bench bench(2, {.prewarm = true, .value = true});
  bench.add_sharded(kSharded, kShard, kPages);
  learn(bench, 8);
  ASSERT_TRUE(whole_group(bench, 0));
  const std::int64_t loads = count_loads(bench, kShard);
  bench.down(DeviceId(0));
  bench.resident[DeviceId(0)].clear();
  EXPECT_TRUE(bench.there(kShard, 1));
  EXPECT_EQ(bench.status(kSharded).requests_waiting, 0);
  bench.arrive(kSharded);  // While a device is down it cannot run.
  EXPECT_EQ(count_loads(bench, kShard), loads);
  EXPECT_EQ(bench.status(kSharded).requests_waiting, 1);
}

TEST(ManagerShards, UnloadingTakesAwayEveryShardThatWaits) {
  Bench bench(2, {.prewarm = true, .value = true});
  bench.add_sharded(kSharded, kShard, kPages);
  learn(bench, 8);
  ASSERT_TRUE(whole_group(bench, 0));
  bench.tell(AdminUnload{.ticket = TicketId(1), .model = kSharded});
  EXPECT_FALSE(bench.there(kSharded, 0) || bench.there(kShard, 1));
  EXPECT_TRUE(std::any_of(bench.said.begin(), bench.said.end(), [](const auto& command) {
    return std::holds_alternative<AdminDone>(command);
  }));
  bench.wait(30s);
  EXPECT_FALSE(bench.there(kSharded, 0)) << "until somebody asks for it";
}

// Without worth, groups come where most is free, and go with what was used longest ago.
TEST(ManagerShards, GroupsAreLoadedAheadWithoutWorth) {
  Bench bench(2, {.prewarm = true});
  bench.add_sharded(kSharded, kShard, kPages);
  learn(bench, 8);
  EXPECT_GT(bench.starts(kSharded, StartKind::kHit), 0U);
}

}  // namespace
}  // namespace heddle::core
