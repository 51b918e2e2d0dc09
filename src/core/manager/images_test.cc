#include "core/manager/images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_state.h"
#include "core/manager/value.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

using test::kA;
using test::kB;
using test::kDevice;
using test::TestState;
using namespace std::chrono_literals;

constexpr HostId kHere{0};
constexpr HostId kThere{1};
constexpr DeviceId kFar = device_id(kThere, 0);
constexpr std::uint64_t kBytes = test::kImagePages * test::kPageBytes;  // 80 MB.
constexpr std::int64_t kRate = 10'000'000;

/// Two hosts of one device, neither of which has the files of model a.
struct TwoHosts : TestState {
  explicit TwoHosts(PlannerOptions planner = {}) : TestState(1, planner) {
    ManagerDevice far = configuration.devices.front();
    far.id = kFar;
    far.name = "far";
    configuration.devices.push_back(far);
    for (ManagerModel& model : configuration.models) {
      model.footprints[kFar] = model.footprints.at(kDevice);
    }
    configuration.models.front().fetched = {{kHere, kBytes}, {kThere, kBytes}};
    configuration.networks = {{kHere, kRate}, {kThere, 2 * kRate}};
    reconfigure();
    devices.up({.device = kFar, .epoch = WorkerEpoch(7)});
  }
  void reconfigure() {
    configure();
    fetches.configure(configuration);
    fetches.advance();
  }
  /// Where the passes load the model when a request waits for it.
  DeviceId placed(ModelId id) {
    wait(id);
    place(parts);
    for (const auto& [device, model] : loads()) {
      if (model == id) {
        return device;
      }
    }
    ADD_FAILURE() << "it was not loaded";
    return {};
  }
};

TEST(Images, AreFetchedWhereNoFilesAre) {
  TwoHosts core;
  EXPECT_EQ(to_fetch(core.model(kA), kHere), kBytes);
  EXPECT_EQ(to_fetch(core.model(kB), kHere), 0U);
  EXPECT_EQ(fetch_time(core.state, kA, kHere), 8s);
  EXPECT_EQ(fetch_time(core.state, kA, kThere), 4s);
  EXPECT_EQ(load_time(core.state, core.model(kA), core.device()), 8s) << "no sooner than fetched";
  core.catalog.image({.model = kA, .bytes = kBytes - 1, .host = kHere});
  EXPECT_EQ(to_fetch(core.model(kA), kHere), kBytes);
  core.catalog.image({.model = kA, .bytes = kBytes, .host = kHere});
  EXPECT_EQ(to_fetch(core.model(kA), kHere), 0U) << "on a device";
  core.catalog.image({.model = kA, .bytes = 0, .host = kHere});
  EXPECT_EQ(to_fetch(core.model(kA), kHere), 0U) << "out of memory, and on disk";
  EXPECT_EQ(to_fetch(core.model(kA), kThere), kBytes);
  core.configuration.models.front().fetched.clear();
  core.reconfigure();
  EXPECT_EQ(to_fetch(core.model(kA), kThere), 0U);
}

// ---- What is loaded ahead ----

/// Model a, which takes four seconds from disk and one from memory, is expected; the far host alone
/// has its image in memory.
struct AheadOnTwoHosts : TwoHosts {
  AheadOnTwoHosts() : TwoHosts({.prewarm = true, .value = true}) {
    LoadRemembered remembered{.model = kA};
    for (std::int64_t window = 0; window < 10; ++window) {
      remembered.windows.emplace_back(window, policy::Load{.mean = 0.5, .peak = 1});
    }
    demand.remember(remembered);
    for (const ModelId id : {kA, kB}) {
      model(id).load_times = {5s, 1s};
    }
    have(kA, kThere);
  }
  void have(ModelId id, HostId host) {
    catalog.image({.model = id, .bytes = kBytes, .host_cached = true, .host = host});
  }
  void drop(ModelId id, HostId host) { catalog.image({.model = id, .bytes = 0, .host = host}); }
};

TEST(Images, WhatIsExpectedIsLoadedWhereItsImageIs) {
  AheadOnTwoHosts core;
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (test::Spots{{kFar, kA}}));
}

TEST(Images, WhatIsExpectedDrivesNoImageOutThatIsWantedSooner) {
  AheadOnTwoHosts core;
  core.drop(kA, kThere);
  core.have(kB, kHere);
  core.have(kB, kThere);
  core.state.full_hosts = {kHere, kThere};
  core.pass(1h);
  core.model(kB).demand.arrived(core.state.now, 1, core.state.options.planner.calendar);
  core.model(kB).last_used = core.state.now;
  core.model(kB).config.slo.ttft = 1s;
  core.model(kB).load_times = {20s, 1s};
  prewarm(core.parts);
  EXPECT_TRUE(core.loads().empty());
  core.state.full_hosts = {kHere};
  prewarm(core.parts);
  EXPECT_EQ(core.loads(), (test::Spots{{kFar, kA}})) << "there is room";
}

// ---- Where requests go ----

TEST(Images, AModelGoesToTheHostThatHasItFirst) {
  TwoHosts core;
  EXPECT_EQ(core.placed(kA), kFar) << "its network is twice as fast";
  TwoHosts other;
  other.catalog.image({.model = kA, .bytes = kBytes, .host_cached = true, .host = kHere});
  EXPECT_EQ(other.placed(kA), kDevice) << "it is in memory there";
  TwoHosts known;
  known.model(kB).load_times = {3s, 1s};
  known.catalog.image({.model = kB, .bytes = kBytes, .host_cached = true, .host = kThere});
  EXPECT_EQ(known.placed(kB), kFar) << "and not read from disk";
}

TEST(Images, FetchesThatOthersWaitForAreNotMadeLate) {
  TwoHosts core;
  core.configuration.models[1].fetched = {{kHere, kBytes}, {kThere, kBytes}};
  for (ManagerModel& model : core.configuration.models) {
    model.slo.ttft = 6s;
  }
  core.reconfigure();
  EXPECT_FALSE(admits_fetch(core.state, kA, kHere) && admits_fetch(core.state, kA, kThere) &&
               fetch_time(core.state, kA, kHere) < 6s);
  ASSERT_EQ(core.placed(kA), kFar) << "4 s there, 8 s here";
  EXPECT_EQ(core.state.networks.at(kThere).fetches().size(), 1U);
  core.wait(kB);
  EXPECT_FALSE(admits_fetch(core.state, kB, kThere)) << "both together take 8 s of 6";
  EXPECT_FALSE(admits_fetch(core.state, kB, kHere));
  std::vector<policy::PlacementDevice> places{{.id = kDevice, .available = true},
                                              {.id = kFar, .available = true}};
  weigh_hosts(core.state, kB, places);
  EXPECT_TRUE(places[0].available && places[1].available) << "late it is everywhere";
  core.configuration.networks[kHere] = 3 * kRate;
  core.reconfigure();
  EXPECT_TRUE(admits_fetch(core.state, kB, kHere));
  weigh_hosts(core.state, kB, places);
  EXPECT_TRUE(places[0].available);
  EXPECT_FALSE(places[1].available);
  EXPECT_EQ(places[0].missing, Duration{});
  EXPECT_GT(places[1].missing, Duration{});
}

TEST(Images, WhatALoadFetchesIsExplained) {
  TwoHosts core;
  core.placed(kA);
  const auto decisions = core.decisions(DecisionKind::kLoad);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(decisions[0].why, testing::HasSubstr("; fetches 76.3 MiB, 4.00 s by estimate"));
  EXPECT_EQ(describe_fetch(core.state, kB, kHere), "");
}

TEST(Images, AHostHearsWhenTheFirstTokenIsDue) {
  TwoHosts core;
  core.configuration.models[0].slo.ttft = 6s;
  core.reconfigure();
  EXPECT_EQ(due_in(core.state, kA), Duration{}) << "nobody waits";
  core.wait(kA);
  core.state.now += 2s;
  core.wait(kA);
  EXPECT_EQ(due_in(core.state, kA), 4s) << "of the request that waits longest";
  core.state.now += 20s;
  EXPECT_EQ(due_in(core.state, kA), Duration{1}) << "late";
}

TEST(Images, AreFetchedFromHostsThatHaveTheFilesTheLeastBusyFirst) {
  TwoHosts core;
  for (std::uint64_t host = 2; host <= 4; ++host) {
    ManagerDevice device = core.configuration.devices.front();
    device.id = device_id(HostId(host), 0);
    device.name = "h" + std::to_string(host) + "/cpu0";
    core.configuration.devices.push_back(device);
    for (ManagerModel& model : core.configuration.models) {
      model.footprints[device.id] = model.footprints.at(kDevice);
    }
  }
  core.configuration.models[0].fetched[HostId(4)] = kBytes;
  core.reconfigure();
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(fetch_peers(core.state, kA, kHere), IsEmpty()) << "no such host is up";
  for (std::uint64_t host = 2; host <= 4; ++host) {
    core.devices.up({.device = device_id(HostId(host), 0), .epoch = WorkerEpoch(host)});
  }
  EXPECT_THAT(fetch_peers(core.state, kA, kHere), ElementsAre(HostId(2), HostId(3)));
  EXPECT_THAT(fetch_peers(core.state, kA, HostId(2)), IsEmpty()) << "it has them";
  EXPECT_THAT(fetch_peers(core.state, kB, kHere), IsEmpty());
  EXPECT_THAT(describe_fetch(core.state, kA, kHere),
              testing::HasSubstr(", from the caches of h2 and h3"));
  core.catalog.image({.model = kA, .bytes = kBytes, .host_cached = true, .host = HostId(4)});
  core.residency.begin_load(kDevice, kA, LoadReason::kRequest);
  EXPECT_THAT(core.state.devices.at(kDevice).instances.at(kA).peers,
              ElementsAre(HostId(2), HostId(3)));
  EXPECT_THAT(fetch_peers(core.state, kA, kThere), ElementsAre(HostId(4), HostId(2)))
      << "the others serve a fetch";
  core.state.devices.at(kDevice).instances.at(kA).complete = true;
  EXPECT_THAT(fetch_peers(core.state, kA, kThere), ElementsAre(HostId(2), HostId(3)));
}

TEST(Images, OnOneHostNothingIsWeighed) {
  TestState core;
  std::vector<policy::PlacementDevice> places{{.id = kDevice, .available = true}};
  weigh_hosts(core.state, kA, places);
  EXPECT_EQ(places[0].missing, Duration{});
  EXPECT_TRUE(places[0].available);
}

}  // namespace
}  // namespace heddle::core::manager
