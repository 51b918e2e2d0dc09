// Groups of stages on several hosts, whose blocks overlap: each host's device leads one, with that
// of the next host.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/manager/test_bench.h"
#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kOverRing{1};
constexpr ModelId kOnOneHost{2};
constexpr ModelId kRingStage{3};

DeviceId host_device(std::uint64_t host) {
  return device_id(HostId(host), 0);
}

/// kOverRing in two stages over these hosts, of one device each, and kOnOneHost on any.
Configure ring_of_hosts(const std::vector<std::uint64_t>& hosts) {
  Configure configure{.options = {.drain_after = 1s}};
  for (const ModelId id : {kOverRing, kOnOneHost, kRingStage}) {
    configure.models.push_back(
        {.id = id, .name = "m" + std::to_string(id.value()), .image_bytes = 100, .context = 100});
  }
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const DeviceId here = host_device(hosts[i]);
    configure.devices.push_back(
        {.id = here, .name = "h" + std::to_string(hosts[i]), .pages = 20, .page_bytes = 100});
    for (ManagerModel& model : configure.models) {
      model.footprints[here] = {.image_pages = 8, .min_kv_pages = 1, .kv = test::kKv};
    }
    configure.models[0].groups[here] = {
        {.model = kRingStage, .device = host_device(hosts[(i + 1) % hosts.size()])}};
  }
  configure.models[2].part_of = kOverRing;
  return configure;
}

/// The test says what the devices say.
class HostGroups : public testing::Test, public test::Bench {
 protected:
  HostGroups() : test::Bench(ring_of_hosts({1, 2, 3})) {}

  std::vector<ManagerCommand> complete(std::uint64_t host, ModelId model) {
    report(host_device(host), ModelServing{.model = model});
    return report(
        host_device(host),
        DeviceReport{
            .models = {{.model = model, .residency = Residency::kWarm, .complete = true}}});
  }
  [[nodiscard]] std::vector<GroupMember> members(std::uint64_t leader, std::uint64_t other) const {
    return {{.device = host_device(leader),
             .epoch = epochs.at(host_device(leader)),
             .model = kOverRing},
            {.device = host_device(other),
             .epoch = epochs.at(host_device(other)),
             .model = kRingStage}};
  }
  [[nodiscard]] GroupFormed formed(std::uint64_t leader, std::uint64_t other) const {
    return {.device = host_device(leader),
            .epoch = epochs.at(host_device(leader)),
            .model = kOverRing,
            .members = members(leader, other)};
  }
  /// It runs on hosts 1 and 2. What had it formed.
  FormGroup serve() {
    ask(kOverRing);
    complete(1, kOverRing);
    const auto commands = complete(2, kRingStage);
    const FormGroup form = *find<FormGroup>(commands);
    tell(formed(1, 2));
    return form;
  }
  std::vector<ManagerCommand> lose_host(std::uint64_t host) {
    return tell(HostLost{.host = HostId(host)});
  }
  std::vector<ManagerCommand> evicted(std::uint64_t host, ModelId model) {
    return report(host_device(host), ModelEvicted{.model = model});
  }
  /// A manager that begins hears what a host has.
  void find_worker(std::uint64_t host, ModelId model) {
    tell(WorkerFound{
        .device = host_device(host),
        .epoch = epochs.at(host_device(host)),
        .report = {
            .models = {{.model = model, .residency = Residency::kServing, .complete = true}}}});
  }
  void begin_anew(const Configure& configure) {
    core = ManagerCore();
    tell(Settled{.settled = false});
    tell(configure);
  }
  static bool evicts(const std::vector<ManagerCommand>& commands, std::uint64_t host) {
    return std::ranges::any_of(commands, [host](const ManagerCommand& command) {
      const auto* evict = std::get_if<EvictFrom>(&command);
      return evict != nullptr && evict->device == host_device(host) &&
             evict->mode == EvictMode::kNow;
    });
  }
};

TEST_F(HostGroups, EachHasANumberOfItsOwn) {
  const FormGroup first = serve();
  EXPECT_EQ(first.members, members(1, 2));
  finish(requests);
  tell(AdminUnload{.ticket = TicketId(1), .model = kOverRing});
  evicted(1, kOverRing);
  evicted(2, kRingStage);
  ask(kOverRing);
  complete(1, kOverRing);
  const auto again = complete(2, kRingStage);
  ASSERT_NE(find<FormGroup>(again), nullptr);
  EXPECT_NE(find<FormGroup>(again)->group, first.group);
}

TEST_F(HostGroups, WhereAFollowersHostIsLostTheLeaderGoesAndTheModelToAnotherBlock) {
  serve();
  EXPECT_TRUE(evicts(lose_host(2), 1));
  const auto commands = report(host_device(1), RequestReturned{.request = RequestId(requests)});
  std::set<DeviceId> loaded;
  for (const ManagerCommand& command : commands) {
    if (const auto* load = std::get_if<LoadOn>(&command)) {
      loaded.insert(load->device);
    }
  }
  EXPECT_EQ(loaded, (std::set{host_device(1), host_device(3)}))
      << "host 3 leads, and host 1 follows";
}

TEST_F(HostGroups, WhereTheLeadersHostIsLostTheFollowerGoes) {
  serve();
  EXPECT_TRUE(evicts(lose_host(1), 2));
}

TEST_F(HostGroups, AHostThatIsToGoSendsAwayAGroupThatItFollowsIn) {
  serve();
  finish(requests);
  const auto commands = tell(HostLeaving{.host = HostId(2)});
  ASSERT_NE(find<EvictFrom>(commands), nullptr);
  EXPECT_EQ(find<EvictFrom>(commands)->device, host_device(1)) << "by its leader";
}

TEST_F(HostGroups, AGroupKeepsItsDevicesWhenTheRingChanges) {
  serve();
  Configure later = ring_of_hosts({1, 3, 2});  // Host 1 leads host 3 now.
  EXPECT_FALSE(evicts(tell(later), 1));
  EXPECT_EQ(status(kOverRing).peers, std::vector{host_device(2)});
  finish(requests);
  ask(kOverRing);
  EXPECT_EQ(status(kOverRing).requests_running, 1);
}

TEST_F(HostGroups, AGroupIsTakenOverThoughItsHostsAreHeardOfOneAfterTheOther) {
  begin_anew(ring_of_hosts({1, 2, 3}));
  find_worker(1, kOverRing);
  tell(formed(1, 2));
  find_worker(2, kRingStage);
  EXPECT_FALSE(evicts(tell(Settled{}), 1));
  ask(kOverRing);
  EXPECT_EQ(status(kOverRing).requests_running, 1);
}

TEST_F(HostGroups, OneThatIsInNoBlockOfTheConfigurationIsTakenOverAsItIs) {
  begin_anew(ring_of_hosts({1, 3, 2}));
  find_worker(1, kOverRing);
  find_worker(2, kRingStage);
  tell(formed(1, 2));
  EXPECT_FALSE(evicts(tell(Settled{}), 1));
  ask(kOverRing);
  EXPECT_EQ(status(kOverRing).requests_running, 1);
  EXPECT_EQ(status(kOverRing).peers, std::vector{host_device(2)});
}

TEST_F(HostGroups, OneOfWhichAHostIsAwayIsEndedByTheNextManager) {
  begin_anew(ring_of_hosts({1, 2, 3}));
  find_worker(1, kOverRing);
  tell(formed(1, 2));
  EXPECT_TRUE(evicts(tell(Settled{}), 1));
}

/// Whatever runs ends, until nothing waits.
void end_all(test::Bench& bench) {
  const std::vector<RequestId> asked(bench.asked.begin(), bench.asked.end());
  for (int turn = 0; turn < 40; ++turn) {
    bench.wait(1s);
    for (const RequestId id : asked) {
      const bool sent = std::ranges::any_of(bench.sent, [id](const auto& entry) {
        return std::ranges::find(entry.second, id) != entry.second.end();
      });
      if (sent) {
        bench.finish(id);
      }
    }
  }
}

/// Hosts come, go and die, and two models want the same devices: the core never contradicts itself,
/// and in the end all requests have run.
TEST(HostGroupsAtRandom, WhateverHostsDoRequestsEnd) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    test::Bench bench(ring_of_hosts({1, 2, 3}));
    bench.acts = true;
    bench.load_takes = 50ms;
    std::set<std::uint64_t> up{1, 2, 3};
    const auto lose = [&](std::uint64_t host) {
      const DeviceId lost = host_device(host);
      up.erase(host);
      bench.resident[lost].clear();
      std::erase_if(bench.complete, [&](const auto& one) { return one.first == lost; });
      std::erase_if(bench.loads, [&](const auto& load) { return load.device == lost; });
      bench.tell(HostLost{.host = HostId(host)});
      bench.tell(PlaceLost{.device = lost,
                           .epoch = bench.epochs.at(lost),
                           .requests = {bench.asked.begin(), bench.asked.end()}});
    };
    const auto come = [&](std::uint64_t host) {
      up.insert(host);
      bench.come_up(host_device(host));
    };
    for (int step = 0; step < 60; ++step) {
      const std::uint64_t host = 1 + rng.below(4);
      switch (rng.below(6)) {
        case 0:
        case 1:
          bench.arrive(rng.below(2) == 0 ? kOverRing : kOnOneHost);
          break;
        case 2:
          if (!bench.asked.empty()) {
            bench.finish(1 + rng.below(bench.requests));
          }
          break;
        case 3:
          if (up.contains(host) && up.size() > 1) {
            lose(host);
          } else if (host <= 3 && !up.contains(host)) {
            come(host);
          }
          break;
        case 4: {
          std::vector<std::uint64_t> ring = {1, 2, 3};
          std::swap(ring[rng.below(3)], ring[rng.below(3)]);
          bench.tell(ring_of_hosts(ring));
          break;
        }
        default:
          bench.wait(std::chrono::milliseconds(rng.below(200)));
      }
    }
    for (const std::uint64_t host : {1U, 2U, 3U}) {
      if (!up.contains(host)) {
        come(host);
      }
    }
    end_all(bench);
    for (const ModelId model : {kOverRing, kOnOneHost}) {
      EXPECT_EQ(bench.status(model).requests_waiting, 0);
    }
  }
}

}  // namespace
}  // namespace heddle::core
