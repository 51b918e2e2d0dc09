#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "twin/test_anything.h"
#include "twin/test_cluster_world.h"
#include "twin/test_cold_strikes.h"
#include "twin/test_seeds.h"

/// Three hosts. A check that fails prints its seed, and HEDDLE_SEED=n runs only that;
/// HEDDLE_WORLDS=n runs so many of each kind.
namespace heddle::twin::test {
namespace {

using ClusterOptions = std::function<WorldOptions(std::uint64_t seed)>;
using ClusterLook = std::function<void(const ClusterWorld&)>;

void play_clusters(std::uint64_t worlds, const ClusterOptions& options, const ClusterLook& look) {
  for (const std::uint64_t seed : seeds(worlds)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    name_seed(seed);
    WorldOptions of_seed = options(seed);
    of_seed.seed = seed;
    ClusterWorld world(of_seed);
    world.run();
    look(world);
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

WorldOptions three_hosts(WorldOptions options) {
  options.hosts = 3;
  options.gateways = 1 + options.seed % 2;
  options.devices = std::min(options.devices, 2);
  return options;
}

/// No request fails but for one that came while its gateway's manager knew of no host that serves
/// its model, or where `unlucky` under which workers died again and again: these are counted.
std::int64_t expect_all_answered(const ClusterWorld& world, bool unlucky = false) {
  std::int64_t refused = 0;
  for (const Request& request : world.requests()) {
    const bool early = request.arrived == Instant{} && request.error.code == Code::kNotFound;
    const bool blamed =
        request.error.message.find("times while it ran this request") != std::string::npos;
    if (early || (unlucky && blamed)) {
      ++refused;
      continue;
    }
    EXPECT_EQ(request.end, Request::End::kDone) << request.error.message;
  }
  return refused;
}

TEST(ClusterWorld, EveryRequestIsAnsweredWhenNothingGoesWrong) {
  play_clusters(
      50,
      [](std::uint64_t seed) { return three_hosts({.seed = seed}); },
      [](const ClusterWorld& world) {
        for (const Request& request : world.requests()) {
          EXPECT_EQ(request.end, Request::End::kDone) << request.error.message;
        }
      });
}

TEST(ClusterWorld, NothingIsLostWhileLinksBreakAndManagersAndHostsDie) {
  std::int64_t broken = 0;
  std::int64_t refused = 0;
  std::int64_t all = 0;
  play_clusters(
      400,
      [](std::uint64_t seed) {
        WorldOptions options = three_hosts({.seed = seed, .copy = seed % 3 == 0});
        options.prefix_cache = seed % 4 == 0 ? 0 : 100;
        options.sharded = seed % 5 == 0 ? 1 : 0;
        options.manager_deaths = static_cast<int>(seed % 4);
        options.host_deaths = static_cast<int>(seed / 4 % 3);
        options.cuts = static_cast<int>(seed / 3 % 5);
        options.one_way_cuts = static_cast<int>(seed / 2 % 6);
        options.resets = static_cast<int>(seed / 5 % 6);
        return options;
      },
      [&](const ClusterWorld& world) {
        refused += expect_all_answered(world);
        all += std::ssize(world.requests());
        broken += std::ssize(world.cluster().leaders()) + std::ssize(world.cluster().hosts());
      });
  RecordProperty("refused", std::to_string(refused));
  RecordProperty("requests", std::to_string(all));
  EXPECT_GT(broken, 400 * 5 / kShare);
  EXPECT_LT(50 * refused, all);
}

/// Everything that goes wrong in a host and between them.
WorldOptions anything_in_a_cluster(std::uint64_t seed) {
  WorldOptions options = seed % 3 == 0   ? anything_planned(seed)
                         : seed % 3 == 1 ? anything_sharded(anything(seed))
                                         : anything(seed);
  options = three_hosts(options);
  Rng rng(seed ^ 0xc105U);
  options.manager_deaths = static_cast<int>(rng.below(4));
  options.host_deaths = static_cast<int>(rng.below(4));
  options.cuts = static_cast<int>(rng.below(5));
  options.one_way_cuts = static_cast<int>(rng.below(7));
  options.resets = static_cast<int>(rng.below(7));
  return options;
}

TEST(ClusterWorld, SurvivesAnything) {
  std::int64_t done = 0;
  std::int64_t all = 0;
  play_clusters(500, anything_in_a_cluster, [&](const ClusterWorld& world) {
    for (const Request& request : world.requests()) {
      done += request.end == Request::End::kDone ? 1 : 0;
      ++all;
    }
  });
  EXPECT_GT(2 * done, all);
}

/// Three hosts, with models that come over a network and start in stages.
WorldOptions cold_starts(std::uint64_t seed) {
  WorldOptions options = three_hosts({.seed = seed,
                                      .devices = 1,
                                      .models = 3,
                                      .host_pages = 40,
                                      .device_pages = 30,
                                      .requests = 25,
                                      .arrivals = 150ms,
                                      .fetched = 2,
                                      .prefix_cache = 50,
                                      .ttft = 2ms});
  return options;
}

/// What became of models that started in stages.
struct Stages {
  std::int64_t formed = 0;  ///< Groups.
  std::int64_t moved = 0;   ///< Requests whose KV came to the whole model,
  std::int64_t found = 0;   ///< and tokens of it.

  void add(const ClusterWorld& world) {
    for (const auto& leader : world.cluster().leaders()) {
      for (const auto& step : leader->record()) {
        const auto* said = std::get_if<core::WorkerSaid>(&step.event);
        const auto* kv = said ? std::get_if<core::KvMoved>(&said->report) : nullptr;
        formed += std::holds_alternative<core::GroupFormed>(step.event) ? 1 : 0;
        moved += kv != nullptr ? 1 : 0;
        found += kv != nullptr ? static_cast<std::int64_t>(kv->tokens) : 0;
      }
    }
  }
};

TEST(ClusterWorld, ColdStartsInStagesLoseNothing) {
  Stages stages;
  play_clusters(100, cold_starts, [&](const ClusterWorld& world) {
    stages.add(world);
    for (const Request& request : world.requests()) {
      EXPECT_EQ(request.end, Request::End::kDone) << request.error.message;
    }
  });
  EXPECT_GT(stages.formed, 50 / kShare);
  EXPECT_GT(stages.moved, 50 / kShare);
}

TEST(ClusterWorld, WhoeverDiesInAColdStartNothingIsLost) {
  Stages stages;
  std::int64_t refused = 0;
  std::int64_t all = 0;
  play_clusters(
      240,
      [](std::uint64_t seed) {
        WorldOptions options = cold_starts(seed);
        options.deaths = static_cast<int>(seed % 4);
        options.host_deaths = static_cast<int>(seed / 4 % 3);
        options.manager_deaths = static_cast<int>(seed / 3 % 3);
        options.cuts = static_cast<int>(seed / 2 % 4);
        options.one_way_cuts = static_cast<int>(seed / 5 % 4);
        options.resets = static_cast<int>(seed / 7 % 4);
        return options;
      },
      [&](const ClusterWorld& world) {
        stages.add(world);
        refused += expect_all_answered(world, true);
        all += std::ssize(world.requests());
      });
  EXPECT_GT(stages.formed, 60 / kShare);
  EXPECT_LT(50 * refused, all);
}

TEST(ClusterWorld, WhoeverDiesAtEachMomentOfAColdStartNothingIsLost) {
  for (std::size_t moment = 0; moment < kColdMoments.size(); ++moment) {
    for (std::size_t victim = 0; victim < kColdVictims.size(); ++victim) {
      SCOPED_TRACE(std::string(kColdVictims.at(victim)) + ", when it " +
                   std::string(kColdMoments.at(moment)));
      int struck = 0;
      for (std::uint64_t seed = 0; seed < 5 && struck < 5 / kShare; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        name_seed(moment * 1000 + victim * 100 + seed);
        ClusterWorld world(cold_starts(seed));
        ColdStrikes strikes(static_cast<ColdMoment>(moment), static_cast<ColdVictim>(victim));
        world.run([&](Cluster& cluster) { strikes.look(cluster); });
        struck += strikes.struck() ? 1 : 0;
        (void)expect_all_answered(world);
      }
      EXPECT_GE(struck, kShare > 1 ? 1 : 2);
    }
  }
}

/// Three hosts, whose manager hears 300 events and more while nothing goes wrong.
WorldOptions manager_dies(std::optional<std::uint64_t> after) {
  WorldOptions options = three_hosts({.seed = 11});
  options.requests = 40;
  options.arrivals = 60ms;
  options.manager_dies_after = after;
  return options;
}

TEST(ClusterWorld, AManagerThatDiesAfterAnyOf300EventsLosesNothing) {
  ClusterWorld smooth(manager_dies(std::nullopt));
  smooth.run();
  ASSERT_GE(smooth.cluster().leaders()[0]->heard(), 300U);
  // A gateway knows of no models before a first manager has told it of them, which shows in what
  // comes from it then.
  std::set<FrontId> told;
  std::uint64_t all_told = 0;
  const auto& record = smooth.cluster().leaders()[0]->record();
  for (std::uint64_t i = 0; i < record.size() && told.size() < 2; ++i) {
    const auto* arrived = std::get_if<core::RequestArrived>(&record[i].event);
    if (arrived != nullptr && told.insert(front_of(arrived->request)).second) {
      all_told = i + 1;
    }
  }
  ASSERT_EQ(told.size(), 2U);
  ASSERT_LT(all_told, 50U);
  for (std::uint64_t event = 1; event <= 300; event += kShare) {
    SCOPED_TRACE("event " + std::to_string(event));
    name_seed(event);
    ClusterWorld world(manager_dies(event));
    world.run();
    EXPECT_EQ(world.cluster().leaders().size(), 2U);
    const std::int64_t refused = expect_all_answered(world);
    EXPECT_TRUE(refused == 0 || event <= all_told) << refused;
  }
}

}  // namespace
}  // namespace heddle::twin::test
