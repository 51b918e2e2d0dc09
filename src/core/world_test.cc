#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/test_world.h"

namespace heddle::core::test {
namespace {

std::uint64_t running_seed = 0;  // NOLINT(*-non-const-global-*): for the handler of SIGABRT.

/// Runs a world to its end. A check that fails says which seed it was; HEDDLE_SEED=n runs only
/// that.
void run(CoreWorld& world, std::uint64_t seed) {
  running_seed = seed;
  std::signal(SIGABRT, [](int) { std::fprintf(stderr, "seed %lu\n", running_seed); });
  world.run();
}

/// What sanitizers look for shows in the first worlds if it shows at all, and each takes them ten
/// times as long.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kShare = 5;
#else
constexpr int kShare = 1;
#endif

/// Seeds [0, count), under sanitizers a fifth of them, or the one that was asked for. What is
/// counted over all of them is a fifth there, too.
std::vector<std::uint64_t> seeds(std::uint64_t count) {
  if (const char* only = std::getenv("HEDDLE_SEED")) {
    return {std::strtoull(only, nullptr, 10)};
  }
  std::vector<std::uint64_t> all(count / kShare);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

std::int64_t count(const CoreWorld& world, Record::End end) {
  std::int64_t n = 0;
  for (const auto& [id, record] : world.records()) {
    n += record.end == end ? 1 : 0;
  }
  return n;
}

/// Everything at once, in measures that the seed decides.
WorldOptions anything(std::uint64_t seed) {
  Rng rng(seed ^ 0x5eedU);
  const auto chance = [&rng](std::uint64_t of) { return rng.below(of) == 0; };
  return {.seed = seed,
          .devices = 1 + static_cast<int>(rng.below(3)),
          .models = 2 + static_cast<int>(rng.below(5)),
          .host_pages = 8 + static_cast<std::int64_t>(rng.below(30)),
          .device_pages = 15 + static_cast<std::int64_t>(rng.below(12)),
          .uneven_pages = chance(3) ? static_cast<std::int64_t>(rng.below(10)) : 0,
          .copy = chance(3),
          .requests = 10 + static_cast<int>(rng.below(50)),
          .arrivals = 20ms + 10ms * static_cast<int>(rng.below(40)),
          .kills = chance(2) ? static_cast<int>(rng.below(8)) : 0,
          .read_failures = chance(3) ? static_cast<int>(rng.below(12)) : 0,
          .open_failures = chance(3) ? static_cast<int>(rng.below(6)) : 0,
          .cancels = chance(2),
          .admin = chance(2),
          .reloads = chance(3),
          .pin_one = chance(5),
          .prefix_cache = chance(3) ? 0 : 1 + static_cast<std::int64_t>(rng.below(100)),
          .ttft = 1ms * static_cast<int>(1 + rng.below(200)),
          .queue = chance(4) ? policy::QueueRule::kArrival : policy::QueueRule::kMooreHodgson,
          .fixed_parts = chance(4) ? 2 + static_cast<std::int64_t>(rng.below(3)) : 0,
          .graph_pages = chance(3) ? static_cast<std::int64_t>(rng.below(4)) : 0,
          .stuck_graphs = chance(3)};
}

/// The same with two devices or more, and some models that are sharded over two.
WorldOptions anything_sharded(WorldOptions options) {
  Rng rng(options.seed ^ 0xc07U);
  options.devices = 2 + static_cast<int>(rng.below(4));
  options.sharded = 1 + static_cast<int>(rng.below(3));
  return options;
}

/// Looks ahead every 5 ms, in windows of 50 ms.
PlannerOptions short_planner() {
  return {.period = 5ms, .calendar = {.window = 50ms, .windows_per_day = 8}};
}

/// The same with a planner of which some parts decide.
WorldOptions anything_planned(std::uint64_t seed) {
  WorldOptions options = anything(seed);
  Rng rng(seed ^ 0xb1a0U);
  const auto chance = [&rng](std::uint64_t of) { return rng.below(of) == 0; };
  options.batch = 1 + static_cast<std::int64_t>(rng.below(6));
  options.planner = short_planner();
  options.planner.prewarm = !chance(4);
  options.planner.value = !chance(4);
  options.planner.pressure = !chance(4);
  options.planner.replicas = !chance(4);
  options.planner.share = !chance(4);
  options.planner.evict = !chance(6);
  return options;
}

TEST(World, EveryRequestIsAnsweredWhenNothingGoesWrong) {
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      ASSERT_EQ(record.end, Record::End::kDone) << record.error.message;
    }
  }
}

TEST(World, EveryRequestIsAnsweredWhenDevicesCopy) {
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed, .copy = true});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      ASSERT_EQ(record.end, Record::End::kDone) << record.error.message;
    }
  }
}

// CUDA graphs have pages while nobody needs them; they go for loads and for the last sequence that
// could run, and come again.
TEST(World, EveryRequestIsAnsweredBesideRecordings) {
  std::int64_t kept = 0;
  std::int64_t given_up = 0;
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed,
                     .copy = seed % 2 == 0,
                     .prefix_cache = seed % 3 == 0 ? 0 : 100,
                     .graph_pages = 1 + static_cast<std::int64_t>(seed % 3)});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      ASSERT_EQ(record.end, Record::End::kDone) << record.error.message;
    }
    for (const auto& life : world.lives) {
      for (const WorkerCommand& wanted : life->wanted) {
        if (const auto* keep = std::get_if<KeepGraphs>(&wanted)) {
          ++(keep->pages > 0 ? kept : given_up);
        }
      }
    }
  }
  EXPECT_GT(kept, 300 / kShare);
  EXPECT_GT(given_up, 300 / kShare);
}

// Where only a pinned model has the pages that a sequence lacks, CUDA graphs go, or it does.
TEST(World, WhoIsDeniedPagesDoesWithoutOrIsTold) {
  std::int64_t denied = 0;
  std::int64_t told = 0;
  for (const std::uint64_t seed : seeds(100)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed, .pin_one = true, .graph_pages = 2});
    run(world, seed);
    for (const ManagerCommand& wanted : world.manager_wanted) {
      const auto* told_worker = std::get_if<TellWorker>(&wanted);
      const bool no_pages =
          told_worker != nullptr && std::holds_alternative<NoPages>(told_worker->message);
      denied += no_pages ? 1 : 0;
    }
    for (const auto& [id, record] : world.records()) {
      told += record.end == Record::End::kFailed ? 1 : 0;
      ASSERT_TRUE(record.end == Record::End::kDone || record.error.code == Code::kResourceExhausted)
          << record.error.message;
    }
  }
  EXPECT_GT(told, 0);
  EXPECT_GT(denied, told) << "some found the pages of graphs";
}

// Cached prefixes are used, and whatever needs their pages gets them.
TEST(World, EveryRequestIsAnsweredWithAFullCache) {
  std::int64_t found = 0;
  std::int64_t trimmed = 0;
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed, .copy = seed % 2 == 0, .prefix_cache = 100});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      ASSERT_EQ(record.end, Record::End::kDone) << record.error.message;
    }
    for (const auto& life : world.lives) {
      found += life->prefix_tokens;
      trimmed += std::count_if(life->wanted.begin(), life->wanted.end(), [](const auto& wanted) {
        return std::holds_alternative<TrimCached>(wanted);
      });
    }
  }
  EXPECT_GT(found, 100'000 / kShare);
  EXPECT_GT(trimmed, 300 / kShare);
}

// A request that only the larger device has the memory for runs there, wherever its model is.
TEST(World, EveryRequestIsAnsweredWhenDevicesAreUneven) {
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed, .uneven_pages = 1 + static_cast<std::int64_t>(seed % 12)});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      ASSERT_EQ(record.end, Record::End::kDone) << record.error.message;
    }
  }
}

// A worker that dies is a pause to its requests, unless they were there three times.
TEST(World, DeathsAreInvisible) {
  std::int64_t done = 0;
  std::int64_t failed = 0;
  for (const std::uint64_t seed : seeds(300)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed, .kills = 3});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      if (record.end == Record::End::kFailed) {
        ASSERT_NE(record.error.message.find("died 3 times"), std::string::npos)
            << record.error.message;
      }
    }
    done += count(world, Record::End::kDone);
    failed += count(world, Record::End::kFailed);
  }
  EXPECT_GT(done, 100 * failed);
}

// Two models that are always wanted and fit only one at a time: both get their turns, and nobody is
// sent away before its minimum residence is over.
TEST(World, ModelsThatAreHotByTurnsNeitherStarveNorThrash) {
  for (const std::uint64_t seed : seeds(40)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const WorldOptions options{.seed = seed,
                               .devices = 1,
                               .models = 2,
                               .device_pages = 17,
                               .image_pages = 8,
                               .requests = 150,
                               .arrivals = 1500ms,
                               .min_residence = 100ms,
                               .drain_after = 20ms};
    CoreWorld world(options);
    run(world, seed);
    ASSERT_EQ(count(world, Record::End::kDone), 150);
    const auto turns = static_cast<std::int64_t>(world.loads());
    EXPECT_GE(turns, 3);
    EXPECT_LE(turns, world.now().time_since_epoch() / options.min_residence + 2);
  }
}

/// Three models of one device, which holds them all, in bursts of more than it can serve in time.
WorldOptions crowd(std::uint64_t seed, policy::QueueRule queue) {
  return {.seed = seed,
          .devices = 1,
          .models = 3,
          .device_pages = 60,
          .image_pages = 4,
          .requests = 60,
          .arrivals = 300ms,
          .ttft = 80ms,
          .queue = queue,
          .prompt_tokens = 120,
          .priorities = false};
}

std::int64_t count_in_time(const CoreWorld& world, Duration ttft) {
  return std::count_if(world.records().begin(), world.records().end(), [ttft](const auto& entry) {
    return entry.second.first_token - entry.second.arrived <= ttft;
  });
}

// The same requests in either order: everybody is served, and by deadline more of them in time.
TEST(World, ADeviceQueueByDeadlineServesMoreInTimeAndLeavesNobodyBehind) {
  std::int64_t by_deadline = 0;
  std::int64_t by_arrival = 0;
  for (const std::uint64_t seed : seeds(60)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    for (const auto queue : {policy::QueueRule::kMooreHodgson, policy::QueueRule::kArrival}) {
      const WorldOptions options = crowd(seed, queue);
      CoreWorld world(options);
      run(world, seed);
      ASSERT_EQ(count(world, Record::End::kDone), options.requests);
      (queue == policy::QueueRule::kArrival ? by_arrival : by_deadline) +=
          count_in_time(world, options.ttft);
    }
  }
  RecordProperty("in_time_by_deadline", std::to_string(by_deadline));
  RecordProperty("in_time_by_arrival", std::to_string(by_arrival));
  EXPECT_GT(10 * by_deadline, 11 * by_arrival) << by_deadline << " and " << by_arrival;
}

// Models that need two devices to themselves beside others that need one, all wanted at once.
TEST(World, EveryRequestIsAnsweredWhereModelsAreCutOverTwoDevices) {
  std::size_t groups = 0;
  for (const std::uint64_t seed : seeds(100)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int devices = 2 + static_cast<int>(seed % 3);
    CoreWorld world({.seed = seed, .devices = devices, .copy = seed % 2 == 0, .sharded = 2});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      ASSERT_EQ(record.end, Record::End::kDone) << record.error.message;
    }
    groups += world.groups();
  }
  EXPECT_GT(groups, 200U / kShare);
}

// Whichever worker of a group dies, the others go with it, and its requests go on.
TEST(World, AGroupThatLosesAWorkerBeginsAnew) {
  std::int64_t done = 0;
  std::int64_t failed = 0;
  std::uint64_t companions = 0;
  for (const std::uint64_t seed : seeds(100)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world({.seed = seed, .models = 3, .kills = 4, .sharded = 2});
    run(world, seed);
    for (const auto& [id, record] : world.records()) {
      if (record.end == Record::End::kFailed) {
        ASSERT_NE(record.error.message.find("died 3 times"), std::string::npos)
            << record.error.message;
      }
    }
    done += count(world, Record::End::kDone);
    failed += count(world, Record::End::kFailed);
    companions += world.companions();
  }
  EXPECT_GT(done, 50 * failed);
  EXPECT_GT(companions, 30U / kShare);
}

/// Runs `worlds` of them, with options by their seeds, and looks at each when it has ended. A world
/// checks after every event that pages are conserved, tokens are right, weights and KV are what was
/// written, and at its end that every request has ended once. Most are answered whatever happens.
void survive(std::uint64_t worlds,
             const std::function<WorldOptions(std::uint64_t seed)>& options,
             const std::function<void(const CoreWorld&)>& look) {
  std::int64_t done = 0;
  std::int64_t all = 0;
  for (const std::uint64_t seed : seeds(worlds)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    CoreWorld world(options(seed));
    run(world, seed);
    done += count(world, Record::End::kDone);
    all += std::ssize(world.records());
    look(world);
  }
  EXPECT_GT(2 * done, all);
}

TEST(World, SurvivesAnything) {
  survive(1000, anything, [](const CoreWorld&) {});
}

TEST(World, SurvivesAnythingWhilePlanningAhead) {
  std::uint64_t ahead = 0;
  survive(600, anything_planned, [&](const CoreWorld& world) {
    for (const ModelStatus& model : world.manager().models()) {
      ahead += model.loads[static_cast<std::size_t>(LoadReason::kForecast)] +
               model.loads[static_cast<std::size_t>(LoadReason::kLoad)] +
               model.loads[static_cast<std::size_t>(LoadReason::kPressure)];
    }
  });
  EXPECT_GT(ahead, 100U / kShare);
}

TEST(World, SurvivesAnythingWithModelsThatAreCut) {
  std::size_t groups = 0;
  survive(
      400,
      [](std::uint64_t seed) {
        return anything_sharded(seed % 2 == 0 ? anything(seed) : anything_planned(seed));
      },
      [&](const CoreWorld& world) { groups += world.groups(); });
  EXPECT_GT(groups, 600U / kShare);
}

// The same where groups are looked ahead for: shards come before anybody asks, some of them go
// again, and groups begin with those that are there.
TEST(World, SurvivesAnythingWhilePlanningAheadForModelsThatAreCut) {
  std::size_t groups = 0;
  std::map<StartKind, std::uint64_t> starts;
  std::uint64_t ahead = 0;
  survive(
      600,
      [](std::uint64_t seed) {
        WorldOptions options = anything_sharded(anything_planned(seed));
        options.planner.prewarm = options.planner.evict = true;
        return options;
      },
      [&](const CoreWorld& world) {
        groups += world.groups();
        for (const ModelStatus& model : world.manager().models()) {
          if (!world.is_sharded(model.id)) {
            continue;
          }
          ahead += model.loads[static_cast<std::size_t>(LoadReason::kForecast)];
          for (const auto kind : {StartKind::kHit, StartKind::kAttach, StartKind::kMiss}) {
            starts[kind] += model.demand.starts[static_cast<std::size_t>(kind)];
          }
        }
      });
  RecordProperty("groups", std::to_string(groups));
  RecordProperty("ahead", std::to_string(ahead));
  RecordProperty("hits", std::to_string(starts[StartKind::kHit]));
  RecordProperty("attaches", std::to_string(starts[StartKind::kAttach]));
  EXPECT_GT(groups, 600U / kShare);
  EXPECT_GT(ahead, 200U / kShare);
  EXPECT_GT(starts[StartKind::kHit], 20U / kShare);
  EXPECT_GT(starts[StartKind::kAttach], 20U / kShare);
}

}  // namespace
}  // namespace heddle::core::test
