#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "twin/test_anything.h"
#include "twin/test_seeds.h"
#include "twin/test_strikes.h"
#include "twin/test_world.h"

namespace heddle::twin::test {

std::vector<std::uint64_t> seeds(std::uint64_t count) {
  if (const char* only = std::getenv("HEDDLE_SEED")) {
    return {std::strtoull(only, nullptr, 10)};
  }
  const char* many = std::getenv("HEDDLE_WORLDS");
  std::vector<std::uint64_t> all(many != nullptr ? std::strtoull(many, nullptr, 10)
                                                 : count / kShare);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

namespace {

std::int64_t count(const World& world, Request::End end) {
  return std::count_if(world.requests().begin(),
                       world.requests().end(),
                       [end](const Request& request) { return request.end == end; });
}

/// Groups that were formed.
std::int64_t groups_of(const World& world) {
  return std::ssize(wanted<core::ConnectGroup>(world.twin().agent_record()));
}

/// Workers that were ended because another of their group had died.
std::int64_t companions_of(const World& world) {
  const auto killed = wanted<core::KillWorker>(world.twin().agent_record());
  return std::count_if(killed.begin(), killed.end(), [](const core::KillWorker* kill) {
    return kill->reason.message != kHangs;
  });
}

/// Runs a world to its end. HEDDLE_SEED=n runs only that of one seed.
void run(World& world, std::uint64_t seed, const std::function<void(Twin&)>& look = {}) {
  name_seed(seed);
  world.run(look);
}

using Options = std::function<WorldOptions(std::uint64_t seed)>;
using Look = std::function<void(const World&)>;

/// Runs `worlds` of them, with options by their seeds, and looks at each when it has ended. A world
/// checks after every event that pages are conserved, tokens are right, weights and KV are what was
/// written, and at its end that every request has ended once.
void play(std::uint64_t worlds, const Options& options, const Look& look) {
  for (const std::uint64_t seed : seeds(worlds)) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    WorldOptions of_seed = options(seed);
    of_seed.seed = seed;
    World world(of_seed);
    run(world, seed);
    look(world);
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

void expect_answers(const World& world) {
  for (const Request& request : world.requests()) {
    EXPECT_EQ(request.end, Request::End::kDone) << request.error.message;
  }
}

TEST(World, EveryRequestIsAnsweredWhenNothingGoesWrong) {
  play(300, [](std::uint64_t /*seed*/) { return WorldOptions(); }, expect_answers);
}

TEST(World, EveryRequestIsAnsweredWhenDevicesCopy) {
  play(300, [](std::uint64_t /*seed*/) { return WorldOptions{.copy = true}; }, expect_answers);
}

// CUDA graphs have pages while nobody needs them; they go for loads and for the last sequence that
// could run, and come again.
TEST(World, EveryRequestIsAnsweredBesideRecordings) {
  std::int64_t kept = 0;
  std::int64_t given_up = 0;
  play(
      300,
      [](std::uint64_t seed) {
        return WorldOptions{.copy = seed % 2 == 0,
                            .prefix_cache = seed % 3 == 0 ? 0 : 100,
                            .graph_pages = 1 + static_cast<std::int64_t>(seed % 3)};
      },
      [&](const World& world) {
        expect_answers(world);
        for (const auto& life : world.twin().lives()) {
          for (const core::KeepGraphs* keep : wanted<core::KeepGraphs>(life->record())) {
            ++(keep->pages > 0 ? kept : given_up);
          }
        }
      });
  EXPECT_GT(kept, 300 / kShare);
  EXPECT_GT(given_up, 300 / kShare);
}

// Where only a pinned model has the pages that a sequence lacks, CUDA graphs go, or it does.
TEST(World, WhoIsDeniedPagesDoesWithoutOrIsTold) {
  std::int64_t denied = 0;
  std::int64_t told = 0;
  play(
      100,
      [](std::uint64_t /*seed*/) { return WorldOptions{.pin_one = true, .graph_pages = 2}; },
      [&](const World& world) {
        for (const auto* worker : wanted<core::TellWorker>(world.twin().manager_record())) {
          denied += std::holds_alternative<core::NoPages>(worker->message) ? 1 : 0;
        }
        told += count(world, Request::End::kFailed);
        for (const Request& request : world.requests()) {
          EXPECT_TRUE(request.end == Request::End::kDone ||
                      request.error.code == Code::kResourceExhausted)
              << request.error.message;
        }
      });
  EXPECT_GT(told, 0);
  EXPECT_GT(denied, told) << "some found the pages of graphs";
}

// Cached prefixes are used, and whatever needs their pages gets them.
TEST(World, EveryRequestIsAnsweredWithAFullCache) {
  std::int64_t found = 0;
  std::int64_t trimmed = 0;
  play(
      300,
      [](std::uint64_t seed) { return WorldOptions{.copy = seed % 2 == 0, .prefix_cache = 100}; },
      [&](const World& world) {
        expect_answers(world);
        for (const auto& life : world.twin().lives()) {
          found += life->prefix_tokens();
          trimmed += std::ssize(wanted<core::TrimCached>(life->record()));
        }
      });
  EXPECT_GT(found, 100'000 / kShare);
  EXPECT_GT(trimmed, 300 / kShare);
}

// A request that only the larger device has the memory for runs there, wherever its model is.
TEST(World, EveryRequestIsAnsweredWhenDevicesAreUneven) {
  play(
      300,
      [](std::uint64_t seed) {
        return WorldOptions{.uneven_pages = 1 + static_cast<std::int64_t>(seed % 12)};
      },
      expect_answers);
}

/// What became of requests whose workers die: a pause, unless they were there three times.
struct Survival {
  std::int64_t done = 0;
  std::int64_t failed = 0;

  void look(const World& world) {
    for (const Request& request : world.requests()) {
      EXPECT_TRUE(request.end != Request::End::kFailed ||
                  request.error.message.find("died 3 times") != std::string::npos)
          << request.error.message;
    }
    done += count(world, Request::End::kDone);
    failed += count(world, Request::End::kFailed);
  }
};

TEST(World, DeathsAreInvisible) {
  Survival survival;
  play(
      300,
      [](std::uint64_t /*seed*/) { return WorldOptions{.deaths = 3}; },
      [&](const World& world) { survival.look(world); });
  EXPECT_GT(survival.done, 100 * survival.failed);
}

// Two models that are always wanted and fit only one at a time: both get their turns, and nobody is
// sent away before its minimum residence is over.
TEST(World, ModelsThatAreHotByTurnsNeitherStarveNorThrash) {
  const WorldOptions options{.devices = 1,
                             .models = 2,
                             .device_pages = 17,
                             .image_pages = 8,
                             .requests = 150,
                             .arrivals = 1500ms,
                             .min_residence = 100ms,
                             .drain_after = 20ms};
  play(
      40,
      [&](std::uint64_t /*seed*/) { return options; },
      [&](const World& world) {
        EXPECT_EQ(count(world, Request::End::kDone), options.requests);
        const auto turns = std::ssize(wanted<core::LoadOn>(world.twin().manager_record()));
        EXPECT_GE(turns, 3);
        EXPECT_LE(turns, world.now().time_since_epoch() / options.min_residence + 2);
      });
}

/// Three models of one device, which holds them all, in bursts of more than it can serve in time.
WorldOptions crowd(policy::QueueRule queue) {
  return {.devices = 1,
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

std::int64_t count_in_time(const World& world, Duration ttft) {
  return std::count_if(
      world.requests().begin(), world.requests().end(), [ttft](const Request& request) {
        return request.first - request.arrived <= ttft;
      });
}

// The same requests in either order: everybody is served, and by deadline more of them in time.
TEST(World, ADeviceQueueByDeadlineServesMoreInTimeAndLeavesNobodyBehind) {
  const auto in_time = [](policy::QueueRule queue) {
    std::int64_t all = 0;
    play(
        60,
        [&](std::uint64_t /*seed*/) { return crowd(queue); },
        [&](const World& world) {
          expect_answers(world);
          all += count_in_time(world, crowd(queue).ttft);
        });
    return all;
  };
  const std::int64_t by_deadline = in_time(policy::QueueRule::kMooreHodgson);
  const std::int64_t by_arrival = in_time(policy::QueueRule::kArrival);
  RecordProperty("in_time_by_deadline", std::to_string(by_deadline));
  RecordProperty("in_time_by_arrival", std::to_string(by_arrival));
  EXPECT_GT(10 * by_deadline, 11 * by_arrival) << by_deadline << " and " << by_arrival;
}

// Models that need two devices to themselves beside others that need one, all wanted at once.
TEST(World, EveryRequestIsAnsweredWhereModelsAreCutOverTwoDevices) {
  std::int64_t groups = 0;
  play(
      100,
      [](std::uint64_t seed) {
        return WorldOptions{
            .devices = 2 + static_cast<int>(seed % 3), .copy = seed % 2 == 0, .sharded = 2};
      },
      [&](const World& world) {
        expect_answers(world);
        groups += groups_of(world);
      });
  EXPECT_GT(groups, 200 / kShare);
}

// Whichever worker of a group dies, the others go with it, and its requests go on.
TEST(World, AGroupThatLosesAWorkerBeginsAnew) {
  Survival survival;
  std::int64_t companions = 0;
  play(
      100,
      [](std::uint64_t /*seed*/) { return WorldOptions{.models = 3, .deaths = 4, .sharded = 2}; },
      [&](const World& world) {
        survival.look(world);
        companions += companions_of(world);
      });
  EXPECT_GT(survival.done, 50 * survival.failed);
  EXPECT_GT(companions, 30 / kShare);
}

/// What was seen of groups that are beside each other.
struct Companies {
  std::int64_t formed_together = 0;
  std::int64_t steps_back = 0;
  std::int64_t groups = 0;

  void look(const World& world) {
    groups += groups_of(world);
    for (const core::ModelStatus& model : world.twin().models()) {
      steps_back += static_cast<std::int64_t>(model.step_backs);
    }
    for (const auto& life : world.twin().lives()) {
      formed_together += led_at_once(*life) > 1 ? 1 : 0;
    }
  }
  /// Most groups that the worker has led at once.
  static std::int64_t led_at_once(const Worker& life) {
    std::set<ModelId> led;
    std::size_t most = 0;
    for (const auto& step : life.record()) {
      if (const auto* joined = std::get_if<core::GroupJoined>(&step.event)) {
        led.insert(joined->model);
      } else if (const auto* left = std::get_if<core::RanksLeft>(&step.event)) {
        led.erase(left->model);
      } else if (const auto* closed = std::get_if<core::ModelClosed>(&step.event)) {
        led.erase(closed->model);
      }
      most = std::max(most, led.size());
    }
    return static_cast<std::int64_t>(most);
  }
};

// Where memory allows, groups are formed at once, and their steps take turns; where it does not,
// idle ones step back. A worker CHECKs that no two leaders hold it at once.
TEST(World, GroupsBesideEachOtherAllAnswer) {
  Companies companies;
  play(
      200,
      [](std::uint64_t seed) {
        return WorldOptions{.devices = 2 + 2 * static_cast<int>(seed % 2),
                            .models = 5,
                            .host_pages = 40,
                            .device_pages = 14 + 4 * static_cast<std::int64_t>(seed % 6),
                            .copy = seed % 3 == 0,
                            .sharded = 2 + static_cast<int>(seed % 3),
                            .beside = true,
                            .prefix_cache = seed % 4 == 0 ? 100 : 0};
      },
      [&](const World& world) {
        expect_answers(world);
        companies.look(world);
      });
  RecordProperty("groups", std::to_string(companies.groups));
  RecordProperty("steps_back", std::to_string(companies.steps_back));
  EXPECT_GT(companies.formed_together, 50 / kShare);
  EXPECT_GT(companies.steps_back, 50 / kShare);
}

TEST(World, GroupsBesideEachOtherOutliveTheirWorkers) {
  Survival survival;
  Companies companies;
  play(
      100,
      [](std::uint64_t seed) {
        return WorldOptions{.models = 4,
                            .device_pages = 14 + 4 * static_cast<std::int64_t>(seed % 6),
                            .deaths = 4,
                            .sharded = 3,
                            .beside = true};
      },
      [&](const World& world) {
        survival.look(world);
        companies.look(world);
      });
  EXPECT_GT(survival.done, 50 * survival.failed);
  EXPECT_GT(companies.formed_together, 20 / kShare);
}

/// Most requests are answered, whatever happens.
void survive(std::uint64_t worlds, const Options& options, const Look& look) {
  std::int64_t done = 0;
  std::int64_t all = 0;
  play(worlds, options, [&](const World& world) {
    done += count(world, Request::End::kDone);
    all += std::ssize(world.requests());
    look(world);
  });
  EXPECT_GT(2 * done, all);
}

TEST(World, SurvivesAnything) {
  survive(1000, anything, [](const World&) {});
}

/// The same where busy models go with their requests after a while.
WorldOptions anything_in_turns(std::uint64_t seed) {
  WorldOptions options = anything(seed);
  options.turn = 1ms * static_cast<int>(1 + seed % 40);
  return options;
}

TEST(World, SurvivesAnythingWhileModelsTakeTurns) {
  std::uint64_t turns = 0;
  survive(500, anything_in_turns, [&](const World& world) {
    for (const core::ModelStatus& model : world.twin().models()) {
      turns += model.evictions[static_cast<std::size_t>(core::EvictionReason::kTurn)];
    }
  });
  EXPECT_GT(turns, 300U / kShare);
}

TEST(World, SurvivesAnythingWhilePlanningAhead) {
  std::uint64_t ahead = 0;
  survive(600, anything_planned, [&](const World& world) {
    for (const core::ModelStatus& model : world.twin().models()) {
      ahead += model.loads[static_cast<std::size_t>(core::LoadReason::kForecast)] +
               model.loads[static_cast<std::size_t>(core::LoadReason::kLoad)] +
               model.loads[static_cast<std::size_t>(core::LoadReason::kPressure)];
    }
  });
  EXPECT_GT(ahead, 100U / kShare);
}

/// The same where models that lack memory get it from other devices: with long requests, so that
/// some do.
WorldOptions anything_woven(std::uint64_t seed) {
  WorldOptions options = anything_planned(seed);
  Rng rng(seed ^ 0x3eaeU);
  options.devices = 2 + static_cast<int>(rng.below(3));
  options.models = options.devices;
  options.device_pages = 24 + static_cast<std::int64_t>(rng.below(16));
  options.prompt_tokens = 100;
  options.fixed_parts = 0;
  options.planner.replicas = options.planner.pressure = rng.below(3) == 0;
  options.planner.weave = true;
  return options;
}

constexpr std::uint64_t kWorldsOfAMoment = 12;

TEST(World, SurvivesAnythingWhileKvIsWoven) {
  std::size_t out = 0;
  std::size_t home = 0;
  std::size_t recalled = 0;
  survive(600, anything_woven, [&](const World& world) {
    for (const auto& life : world.twin().lives()) {
      out += wanted<core::MoveOut>(life->record()).size();
      home += wanted<core::MoveHome>(life->record()).size();
    }
    recalled += wanted<core::Unweave>(world.twin().manager_record()).size();
  });
  EXPECT_GT(out, 500U / kShare);
  EXPECT_GT(home, 20U / kShare);
  EXPECT_GT(recalled, 100U / kShare);
}

// Nothing else goes wrong, so that every request is answered in the end.
TEST(World, ALoanSurvivesDeathsAtEachOfItsMoments) {
  for (std::size_t moment = 0; moment < kLoanMoments.size(); ++moment) {
    for (const Victim victim : {Victim::kHost, Victim::kHot, Victim::kBoth}) {
      SCOPED_TRACE(std::string(kLoanMoments.at(moment)) + ", victim " +
                   std::to_string(static_cast<int>(victim)));
      std::int64_t struck = 0;
      for (const std::uint64_t seed : seeds(kWorldsOfAMoment)) {
        WorldOptions options = anything_woven(seed);
        options.seed = seed;
        options.deaths = options.read_failures = options.open_failures = 0;
        options.cancels = options.reloads = options.admin = options.pin_one = false;
        World world(options);
        Strikes strikes(static_cast<LoanMoment>(moment), victim, seed);
        run(world, seed, [&](Twin& twin) { strikes.look(twin); });
        struck += strikes.struck();
      }
      EXPECT_GT(struck, 0) << "the moment never came";
      RecordProperty(std::string(kLoanMoments.at(moment)), std::to_string(struck));
    }
  }
}

TEST(World, SurvivesAnythingWithModelsThatAreCut) {
  std::int64_t groups = 0;
  survive(
      400,
      [](std::uint64_t seed) {
        return anything_sharded(seed % 2 == 0 ? anything(seed) : anything_planned(seed));
      },
      [&](const World& world) { groups += groups_of(world); });
  EXPECT_GT(groups, 600 / kShare);
}

// The same where groups are looked ahead for: shards come before anybody asks, some of them go
// again, and groups begin with those that are there.
TEST(World, SurvivesAnythingWhilePlanningAheadForModelsThatAreCut) {
  std::int64_t groups = 0;
  std::map<core::StartKind, std::uint64_t> starts;
  std::uint64_t ahead = 0;
  survive(
      600,
      [](std::uint64_t seed) {
        WorldOptions options = anything_sharded(anything_planned(seed));
        options.planner.prewarm = options.planner.evict = true;
        return options;
      },
      [&](const World& world) {
        groups += groups_of(world);
        for (const core::ModelStatus& model : world.twin().models()) {
          if (!world.is_sharded(model.id)) {
            continue;
          }
          ahead += model.loads[static_cast<std::size_t>(core::LoadReason::kForecast)];
          for (const auto kind :
               {core::StartKind::kHit, core::StartKind::kAttach, core::StartKind::kMiss}) {
            starts[kind] += model.demand.starts[static_cast<std::size_t>(kind)];
          }
        }
      });
  RecordProperty("groups", std::to_string(groups));
  RecordProperty("ahead", std::to_string(ahead));
  RecordProperty("hits", std::to_string(starts[core::StartKind::kHit]));
  RecordProperty("attaches", std::to_string(starts[core::StartKind::kAttach]));
  EXPECT_GT(groups, 600 / kShare);
  EXPECT_GT(ahead, 200U / kShare);
  EXPECT_GT(starts[core::StartKind::kHit], 20U / kShare);
  EXPECT_GT(starts[core::StartKind::kAttach], 20U / kShare);
}

// ---- Managers that die, hosts and gateways that are cut off ----

/// What a manager that is new takes up from others it does not decide again: every request ends
/// once, and right, whenever managers die.
TEST(World, ManagersThatDieLoseNothing) {
  std::int64_t taken_over = 0;
  play(
      400,
      [](std::uint64_t seed) {
        WorldOptions options = seed % 2 == 0 ? anything(seed) : anything_sharded(anything(seed));
        options.admin = options.reloads = false;
        options.manager_deaths = 1 + static_cast<int>(seed % 5);
        return options;
      },
      [&](const World& world) {
        for (const auto& step : world.twin().manager_record()) {
          const auto* found = std::get_if<core::WorkerFound>(&step.event);
          taken_over += found != nullptr && !found->report.models.empty() ? 1 : 0;
        }
      });
  EXPECT_GT(taken_over, 100 / kShare);
}

TEST(World, CutsBetweenManagerGatewayAndHostLoseNothing) {
  std::int64_t cuts = 0;
  play(
      400,
      [](std::uint64_t seed) {
        WorldOptions options = seed % 2 == 0 ? anything(seed) : anything_sharded(anything(seed));
        options.admin = options.reloads = false;
        options.manager_deaths = static_cast<int>(seed % 2);
        options.manager_cuts = static_cast<int>(seed % 3) * 2;
        options.gateway_cuts = static_cast<int>(seed % 4) * 2;
        return options;
      },
      [&](const World& world) {
        for (const auto& step : world.twin().manager_record()) {
          cuts += std::holds_alternative<core::HostLost>(step.event) ? 1 : 0;
        }
      });
  EXPECT_GT(cuts, 100 / kShare);
}

}  // namespace
}  // namespace heddle::twin::test
