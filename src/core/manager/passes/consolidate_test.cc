#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/status.h"
#include "core/manager/test_cuts.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::FourHosts;
using test::kA;
using test::kB;
using test::kDevice;
using test::kQuarters;
using test::Spots;
using testing::HasSubstr;

TEST(Consolidate, TheWholeModelComesToWhereItsFirstStageRuns) {
  FourHosts core;
  core.start_in_stages();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.at(kA).why, LoadReason::kGather);
  for (const ManagerCommand& command : core.commands) {
    const auto* load = std::get_if<LoadOn>(&command);
    EXPECT_TRUE(load == nullptr || load->early) << "what requests wait for goes first";
  }
  const auto why = core.decisions(DecisionKind::kAdd);
  ASSERT_EQ(why.size(), 1U);
  EXPECT_THAT(why[0].why, HasSubstr("it runs in 4 stages until it is here"));
  check_invariants(core.state);
  const ModelStatus status = model_statuses(core.state).at(0);
  EXPECT_EQ(status.residency, core::Residency::kServing) << "in its stages";
  EXPECT_EQ(status.peers.size(), 3U);
  core.passes();
  EXPECT_EQ(core.loads().size(), 1U) << "once";
  EXPECT_TRUE(core.at(kQuarters).is<Serving>()) << "it goes on meanwhile";
}

TEST(Consolidate, TheWholeModelComesAsSoonAsTheStagesServe) {
  FourHosts core;
  core.want(3s);
  core.wait(kA);
  core.passes();
  core.arrive_all();
  core.passes();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

TEST(Consolidate, StagesServeUntilTheWholeDoesAndGoWhenTheirRequestsHaveEnded) {
  FourHosts core;
  const RequestId first = core.start_in_stages();
  const RequestId second = core.wait(kA);
  core.passes();
  EXPECT_EQ(core.state.requests.at(second).as, kQuarters);
  core.arrive_all();
  const RequestId third = core.wait(kA);
  core.passes();
  check_invariants(core.state);
  EXPECT_EQ(core.state.requests.at(third).as, kA) << "the whole serves";
  EXPECT_TRUE(core.at(kQuarters).is<Draining>());
  core.finish(first);
  core.passes();
  EXPECT_TRUE(core.at(kQuarters).is<Draining>()) << "one runs";
  core.finish(second);
  core.passes();
  EXPECT_EQ(core.evictions().front(), std::pair(kDevice, kQuarters));
  EXPECT_EQ(core.at(kQuarters).as<Evicting>()->why, EvictionReason::kMoved);
  core.evict_all();
  core.passes();
  core.evict_all();
  EXPECT_EQ(core.places(), (Spots{{kDevice, kA}}));
  check_invariants(core.state);
}

TEST(Consolidate, KvOfRequestsInTheStagesMovesToTheWholeBesideTheFirst) {
  FourHosts core;
  const RequestId id = core.start_in_stages();
  core.arrive_all();
  core.passes();
  core.passes();
  const auto told = core.all<TellWorker>();
  ASSERT_EQ(told.size(), 1U) << "once";
  EXPECT_EQ(told[0].device, kDevice);
  EXPECT_EQ(std::get<Gather>(told[0].message), (Gather{.model = kQuarters, .into = kA}));
  const auto why = core.decisions(DecisionKind::kGather);
  ASSERT_EQ(why.size(), 1U);
  EXPECT_THAT(why[0].why, HasSubstr("KV of 1 requests in its stages"));
  core.at(kA).serving_since += 1s;
  core.passes();
  EXPECT_EQ(core.all<TellWorker>().size(), 2U) << "again, where the whole went and came again";
  core.queues.requeue(id);
  core.passes();
  EXPECT_EQ(core.state.requests.at(id).as, kA) << "it goes on in the whole";
  core.passes();
  EXPECT_EQ(core.evictions().front(), std::pair(kDevice, kQuarters));
  core.queues.moved(kDevice, {.model = kA, .tokens = 48, .computed = 3});
  const ModelStatus status = model_statuses(core.state).at(0);
  EXPECT_EQ(status.kv_moved_tokens, 48U);
  EXPECT_EQ(status.kv_again_tokens, 3U);
  EXPECT_THAT(core.decisions(DecisionKind::kGather).back().why,
              HasSubstr("KV of 48 tokens has come, 3 are computed again"));
  check_invariants(core.state);
}

TEST(Consolidate, NothingMovesToAWholeOnAnotherDevice) {
  FourHosts core;
  core.start_in_stages();
  core.residency.forget(kDevice, kA);
  const DeviceId other = device_id(HostId(1), 0);
  core.residency.begin_load(other, kA, LoadReason::kGather);
  core.arrive_all();
  core.passes();
  EXPECT_TRUE(core.at(kQuarters).is<Draining>());
  EXPECT_TRUE(core.all<TellWorker>().empty());
}

TEST(Consolidate, WeightsThatAreStillToComeHoldUpNoRequest) {
  FourHosts core;
  core.start_in_stages();
  core.residency.serve(kDevice, kA);
  const RequestId id = core.wait(kA);
  core.passes();
  EXPECT_EQ(core.state.requests.at(id).as, kQuarters);
  EXPECT_TRUE(core.at(kQuarters).is<Serving>());
  core.at(kA).complete = true;
  core.passes();
  EXPECT_TRUE(core.at(kQuarters).is<Draining>());
}

TEST(Consolidate, AModelWithMoreLoadThanOneDeviceShouldBearComesToSeveral) {
  FourHosts core;
  core.configuration.options.planner.replicas = true;
  core.want(3s);
  for (int i = 0; i < 9; ++i) {
    core.wait(kA);
  }
  core.passes();
  core.arrive_all();
  core.pass(5s);
  core.loading.expire();
  core.passes();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}, {core.at_host(1), kA}, {core.at_host(2), kA}}))
      << "a device should bear four";
  check_invariants(core.state);
}

TEST(Consolidate, IdleModelsMakeRoomForItBesideTheFirstStage) {
  FourHosts core;
  for (std::uint64_t host = 0; host < 4; ++host) {
    // Two of a stage, 8 of the whole, 8 of another model, and KV.
    core.resize(FourHosts::at_host(host), 19);
    core.serve(kB, FourHosts::at_host(host));
  }
  core.start_in_stages();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kB}}));
  check_invariants(core.state);
}

TEST(Consolidate, TheDeviceOfAnotherStageHasItWhereTheFirstLeavesNoRoom) {
  FourHosts core;
  core.want(3s);
  core.wait(kA);
  core.passes();
  core.arrive_all();
  core.at(kQuarters).kv_pages = 15;
  core.passes();
  EXPECT_EQ(core.loads(), (Spots{{core.at_host(1), kA}}));
  check_invariants(core.state);
}

TEST(Consolidate, AnotherDeviceHasItWhereNoStageLeavesRoom) {
  FourHosts core;
  const DeviceId fifth = core.add_device();
  core.want(3s);
  core.wait(kA);
  core.passes();
  core.arrive_all();
  core.at(kQuarters).kv_pages = 15;
  for (std::uint64_t i = 1; i < 4; ++i) {
    core.at(core.stage(kQuarters, i), core.at_host(i)).kv_pages = 15;
  }
  core.passes();
  EXPECT_EQ(core.loads(), (Spots{{fifth, kA}}));
}

TEST(Consolidate, WithoutRoomAnywhereItStaysInStages) {
  FourHosts core;
  core.want(3s);
  for (const ManagerDevice& device : core.configuration.devices) {
    core.resize(device.id, 10);  // A stage takes 2 and one of KV; the whole 9.
  }
  core.wait(kA);
  core.passes();
  core.arrive_all();
  core.passes();
  EXPECT_TRUE(core.loads().empty());
  EXPECT_TRUE(core.at(kQuarters).is<Serving>());
  core.passes();
  const auto said = core.decisions(DecisionKind::kWait);
  ASSERT_EQ(said.size(), 1U) << "once";
  EXPECT_THAT(said[0].why, HasSubstr("stays in its stages"));
  check_invariants(core.state);
}

TEST(Consolidate, AWholeThatDiedMeanwhileIsLoadedAgain) {
  FourHosts core;
  core.start_in_stages();
  core.commands.clear();
  core.residency.forget(kDevice, kA);
  core.attempts.failed(kA, {Code::kUnavailable, "no"});
  core.passes();
  EXPECT_TRUE(core.loads().empty()) << "not at once";
  core.pass(10s);
  core.loading.expire();
  core.passes();
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kA}}));
}

}  // namespace
}  // namespace heddle::core::manager
