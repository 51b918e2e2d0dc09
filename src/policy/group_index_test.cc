#include "policy/group_index.h"

#include <algorithm>
#include <array>
#include <tuple>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using Index = ReplicaMap::Index;
using Group = std::vector<Index>;
using Sizes = std::vector<std::pair<std::int64_t, std::int64_t>>;

ReplicaMap servers(std::uint64_t count, std::uint64_t devices, std::int64_t pages) {
  std::vector<MapDevice> all;
  for (std::uint64_t i = 0; i < count * devices; ++i) {
    all.push_back(
        {.id = DeviceId(i), .server = static_cast<std::int64_t>(i / devices), .free_pages = pages});
  }
  return ReplicaMap(all);
}

PlacedReplica replica(
    std::uint64_t id, std::uint64_t model, const Group& devices, std::int64_t pages, double score) {
  PlacedReplica made{
      .id = ReplicaId(id), .model = ModelId(model), .pages = pages, .worth = {.score = score}};
  for (const Index device : devices) {
    made.devices.emplace_back(device);
  }
  return made;
}

TEST(GroupIndex, TakesTheGroupWithTheLeastSumAmongThoseWorthLess) {
  ReplicaMap map = servers(1, 4, 100);
  map.place(replica(1, 1, {0}, 10, 3));
  map.place(replica(2, 2, {0}, 10, 3));  // Sum 6, highest 3.
  map.place(replica(3, 3, {1}, 10, 5));  // Sum 5, highest 5.
  map.place(replica(4, 4, {2}, 10, 1));
  map.place(replica(5, 5, {3}, 10, 2));
  const Sizes sizes = {{1, 20}};
  GroupIndex index(map, sizes, 0);
  EXPECT_EQ(index.find({.model = ModelId(9), .pages = 20, .worth = {.score = 4}})->devices,
            Group{2});
  // A model is never twice on a device.
  EXPECT_EQ(index.find({.model = ModelId(4), .pages = 20, .worth = {.score = 4}})->devices,
            Group{3});
  map.place(replica(6, 6, {2, 3}, 70, 9));
  index.update(Group{2, 3});
  // Now only device 0 holds nothing worth more than 4, though its sum is greater than that of 1.
  const auto isolated = index.find({.model = ModelId(9), .pages = 20, .worth = {.score = 4}});
  EXPECT_EQ(isolated->devices, Group{0});
  EXPECT_TRUE(isolated->isolated);
  const auto shared = index.find({.model = ModelId(9), .pages = 20, .worth = {.score = 2}});
  EXPECT_EQ(shared->devices, Group{1});  // Nowhere worth less: the least sum.
  EXPECT_FALSE(shared->isolated);
}

TEST(GroupIndex, FindsLegalGroupsThatAreNoAlignedBlocks) {
  ReplicaMap map = servers(1, 4, 100);
  map.set_device({.id = DeviceId(0), .prewarmable = false});
  map.set_device({.id = DeviceId(2), .prewarmable = false});
  const Sizes sizes = {{2, 20}, {3, 20}};
  GroupIndex index(map, sizes, 0);
  EXPECT_EQ(index.find({.model = ModelId(1), .devices = 2, .pages = 20})->devices, (Group{1, 3}));
  EXPECT_FALSE(index.find({.model = ModelId(1), .devices = 3, .pages = 20}));
}

TEST(GroupIndex, NeverCrossesAReplica) {
  ReplicaMap map = servers(1, 4, 100);
  map.place(replica(1, 1, {1, 2}, 10, 1));
  const Sizes sizes = {{2, 20}};
  GroupIndex index(map, sizes, 0);
  // The blocks {0,1} and {2,3} cross it; {0,3} and {1,2} do not.
  EXPECT_EQ(index.find({.model = ModelId(2), .devices = 2, .pages = 20})->devices, (Group{0, 3}));
}

TEST(GroupIndex, EvictsTheLeastLostScoreAndNoMoreThanNeeded) {
  ReplicaMap map = servers(1, 2, 100);
  map.place(replica(1, 1, {0}, 60, 3));
  map.place(replica(2, 2, {0}, 30, 1));
  map.place(replica(3, 3, {1}, 50, 2));
  map.place(replica(4, 4, {1}, 50, 7));
  const Sizes sizes = {{1, 40}};
  GroupIndex index(map, sizes, 16);
  const GroupWant want{.model = ModelId(9), .pages = 40, .worth = {.score = 5}};
  EXPECT_FALSE(index.find(want));
  // Device 0: both 2 (30 + 10 free) suffices alone: lost 1. Device 1: lost 2.
  const auto found = index.find_by_evicting(want);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, Group{0});
  EXPECT_EQ(found->victims, std::vector{ReplicaId(2)});
  // With 45 pages device 0 must lose the larger one (3), and then not the smaller; device 1
  // loses 2.
  const auto other =
      index.find_by_evicting({.model = ModelId(9), .pages = 45, .worth = {.score = 5}});
  EXPECT_EQ(other->devices, Group{1});
  EXPECT_EQ(other->victims, std::vector{ReplicaId(3)});
}

TEST(GroupIndex, WhereAboutAsMuchIsLostItGoesBesideWhatIsWorthLeast) {
  ReplicaMap map = servers(1, 3, 100);
  map.place(replica(1, 1, {0}, 50, 0.1));
  map.place(replica(2, 2, {0}, 50, 8));
  map.place(replica(3, 3, {1}, 50, 0.2));
  map.place(replica(4, 4, {1}, 50, 6));
  map.place(replica(5, 5, {2}, 50, 1));
  map.place(replica(6, 6, {2}, 50, 2));
  const Sizes sizes = {{1, 40}};
  GroupIndex index(map, sizes, 16);
  const auto found =
      index.find_by_evicting({.model = ModelId(9), .pages = 40, .worth = {.score = 5}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, Group{1}) << "0.1 and 0.2 are as good as the same, 1 is not";
  EXPECT_EQ(found->victims, std::vector{ReplicaId(3)});
}

TEST(GroupIndex, ABlockThatItIsToHaveToItselfIsOneThatNobodyUses) {
  const auto found = [](double worth_of_idle, bool both_used) {
    ReplicaMap map = servers(1, 4, 100);
    PlacedReplica used = replica(1, 1, {1}, 10, 0.2);
    used.state = ReplicaState::kServing;
    used.in_use = true;
    map.place(used);
    PlacedReplica idle = replica(2, 2, {2}, 90, worth_of_idle);
    idle.in_use = both_used;
    map.place(idle);
    const Sizes sizes = {{2, 20}};
    GroupIndex index(map, sizes, 10);
    const GroupWant want{.model = ModelId(9),
                         .devices = 2,
                         .pages = 20,
                         .worth = {.score = 1},
                         .blocks = {{0, 1}, {2, 3}},
                         .alone = true};
    const auto free = index.find(want);
    return free ? free : index.find_by_evicting(want);
  };
  EXPECT_EQ(found(0.05, false)->devices, (Group{2, 3}));
  EXPECT_EQ(found(0.05, false)->victims, std::vector{ReplicaId(2)});
  EXPECT_EQ(found(0.5, false)->devices, (Group{0, 1})) << "that would cost more than waiting may";
  EXPECT_TRUE(found(0.5, false)->victims.empty());
  EXPECT_EQ(found(0.05, true)->devices, (Group{2, 3})) << "beside nothing else";
}

TEST(GroupIndex, DoesNotEvictWhatIsWorthMoreAloneOrTogether) {
  ReplicaMap map = servers(1, 1, 100);
  map.place(replica(1, 1, {0}, 50, 3));
  map.place(replica(2, 2, {0}, 50, 3));
  const Sizes sizes = {{1, 40}, {1, 80}};
  GroupIndex index(map, sizes, 16);
  EXPECT_FALSE(index.find_by_evicting({.model = ModelId(9), .pages = 40, .worth = {.score = 3}}));
  GroupIndex fresh(map, sizes, 16);
  EXPECT_FALSE(fresh.find_by_evicting({.model = ModelId(9), .pages = 80, .worth = {.score = 5}}));
  EXPECT_TRUE(fresh.find_by_evicting({.model = ModelId(9), .pages = 40, .worth = {.score = 5}}));
  // A basic replica outweighs all burst ones, whatever their scores.
  GroupIndex basic(map, sizes, 16);
  EXPECT_TRUE(basic.find_by_evicting(
      {.model = ModelId(9), .pages = 80, .worth = {.tier = 1, .score = 0.1}}));
}

TEST(GroupIndex, EvictingAReplicaThatLiesAcrossFreesItsGroup) {
  ReplicaMap map = servers(1, 4, 100);
  map.place(replica(1, 1, {1, 2}, 95, 1));
  map.place(replica(2, 2, {0}, 95, 9));
  const Sizes sizes = {{2, 20}};
  GroupIndex index(map, sizes, 16);
  const GroupWant want{.model = ModelId(9), .devices = 2, .pages = 20, .worth = {.score = 5}};
  EXPECT_FALSE(index.find(want));
  const auto found = index.find_by_evicting(want);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->devices, (Group{2, 3}));
  EXPECT_EQ(found->victims, std::vector{ReplicaId(1)});
}

/// Algorithm 1 without an index: all aligned blocks if one will do, else all subsets.
std::optional<FoundGroup> naive(const ReplicaMap& map, const GroupWant& want) {
  std::optional<std::tuple<bool, double, Group>> best;
  for (const bool aligned : {true, false}) {
    for (const ReplicaMap::Server& server : map.servers()) {
      for (std::uint32_t mask = 1; mask < (1U << server.count); ++mask) {
        Group group;
        for (Index i = 0; i < server.count; ++i) {
          if ((mask >> i & 1U) != 0) {
            group.push_back(server.first + i);
          }
        }
        const auto size = static_cast<Index>(want.devices);
        const bool block = (size & (size - 1)) == 0 && (group.front() - server.first) % size == 0 &&
                           group.back() - group.front() + 1 == size;
        if (group.size() != size || block != aligned || map.holds(group, want.model)) {
          continue;
        }
        const GroupLook look = map.look(group);
        const bool usable = std::all_of(group.begin(), group.end(), [&](Index device) {
          return map.devices()[device].prewarmable;
        });
        if (!usable || !look.laminar || look.free_pages < want.pages) {
          continue;
        }
        const bool shared = look.highest && !(*look.highest < want.worth);
        const std::tuple candidate(shared, look.score_sum, group);
        best = best ? std::min(*best, candidate) : candidate;
      }
    }
    if (best) {
      return FoundGroup{.devices = std::get<2>(*best), .isolated = !std::get<0>(*best)};
    }
  }
  return std::nullopt;
}

// Property: the index finds what a search over everything finds, while replicas of falling worth
// are placed; no page is taken twice; the sets stay laminar.
TEST(GroupIndex, AgreesWithASearchOverEverything) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    ReplicaMap map = servers(1 + rng.below(3), 1 + rng.below(6), 100);
    const auto count = static_cast<Index>(map.devices().size());
    for (Index device = 0; device < count; ++device) {
      MapDevice known = map.devices()[device];
      known.prewarmable = rng.below(6) != 0;
      known.free_pages = 20 + static_cast<std::int64_t>(rng.below(80));
      map.set_device(known);
    }
    const std::array<std::int64_t, 4> shapes = {1, 2, 3, 4};
    Sizes sizes;
    std::vector<GroupWant> wants;
    for (std::uint64_t i = 0; i < 30; ++i) {
      wants.push_back({.model = ModelId(rng.below(12)),
                       .devices = shapes[rng.below(4)],
                       .pages = 5 + static_cast<std::int64_t>(rng.below(6)) * 5,
                       .worth = {.tier = static_cast<int>(rng.below(2)),
                                 .score = static_cast<double>(rng.below(20))}});
      sizes.emplace_back(wants.back().devices, wants.back().pages);
    }
    std::sort(wants.begin(), wants.end(), [](const GroupWant& a, const GroupWant& b) {
      return b.worth < a.worth;
    });
    std::uint64_t next = 0;
    for (const GroupWant& want : wants) {  // Some replicas there before, of any worth.
      if (rng.below(4) != 0) {
        continue;
      }
      if (const auto found = naive(map, want)) {
        map.place(replica(next++,
                          want.model.value(),
                          found->devices,
                          want.pages,
                          static_cast<double>(rng.below(20))));
      }
    }
    GroupIndex index(map, sizes, 0);
    for (const GroupWant& want : wants) {
      const auto expected = naive(map, want);
      const auto found = index.find(want);
      ASSERT_EQ(found.has_value(), expected.has_value());
      if (!found) {
        continue;
      }
      ASSERT_EQ(found->devices, expected->devices);
      ASSERT_EQ(found->isolated, expected->isolated);
      PlacedReplica placed = replica(next++, want.model.value(), found->devices, want.pages, 0);
      placed.worth = want.worth;
      map.place(placed);
      index.update(found->devices);
    }
  }
}

// More sizes than classes: what is found always fits.
TEST(GroupIndex, ManySizesAreFoundByBoundedWalks) {
  ReplicaMap map = servers(100, 4, 1000);
  Sizes sizes;
  for (std::int64_t pages = 1; pages <= 600; ++pages) {
    sizes.emplace_back(1, pages);
  }
  Rng rng(5);
  GroupIndex index(map, sizes, 0);
  std::int64_t placed = 0;
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const auto pages = 1 + static_cast<std::int64_t>(rng.below(600));
    const GroupWant want{.model = ModelId(i), .pages = pages, .worth = {.score = 1}};
    if (const auto found = index.find(want)) {
      map.place(replica(i, i, found->devices, pages, 1));  // Checks that the pages are there.
      index.update(found->devices);
      ++placed;
    }
  }
  EXPECT_GT(placed, 1000);
}

}  // namespace
}  // namespace heddle::policy
