#include "core/manager/status.h"

#include <functional>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kEngine;
using test::kEnginePages;
using test::kGroup;
using test::kImagePages;
using test::kOther;
using test::kPageBytes;
using test::kShard;
using test::TestState;

ModelStatus status(const TestState& core, ModelId model) {
  for (ModelStatus& each : model_statuses(core.state)) {
    if (each.id == model) {
      return each;
    }
  }
  ADD_FAILURE() << "no such model";
  return {};
}

DeviceStatus device(const TestState& core, DeviceId id = kDevice) {
  return device_statuses(core.state).at(id.value());
}

// ---- Models ----

TEST(Status, TheResidencyOfAModelFollowsItsStage) {
  TestState core;
  EXPECT_EQ(status(core, kA).residency, core::Residency::kAbsent);
  EXPECT_FALSE(status(core, kA).device);
  core.load(kA);
  EXPECT_EQ(status(core, kA).residency, core::Residency::kLoading);
  EXPECT_EQ(status(core, kA).device, kDevice);
  core.serve(kA);
  EXPECT_EQ(status(core, kA).residency, core::Residency::kWarm);
  core.run(kA);
  EXPECT_EQ(status(core, kA).residency, core::Residency::kServing);
  core.residency.drain(kDevice, kA);
  EXPECT_EQ(status(core, kA).residency, core::Residency::kDraining);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kIdle);
  EXPECT_EQ(status(core, kA).residency, core::Residency::kDraining);
}

TEST(Status, OfSeveralDevicesTheOneThatServesIsShownAndAllRequestsAreCounted) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  core.run(kA);
  core.residency.drain(kDevice, kA);
  core.run(kA, kOther);
  core.at(kA).kv_pages = 2;
  core.at(kA, kOther).kv_pages = 3;
  core.wait(kA);
  const ModelStatus shown = status(core, kA);
  EXPECT_EQ(shown.device, kOther);
  EXPECT_EQ(shown.residency, core::Residency::kServing);
  EXPECT_EQ(shown.kv_pages, 5);
  EXPECT_EQ(shown.requests_running, 2);
  EXPECT_EQ(shown.requests_waiting, 1);
}

TEST(Status, AnEngineThatStandsByIsAbsentAndItsRequestsWait) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.run(kEngine);
  core.wait(kEngine);
  EXPECT_EQ(status(core, kEngine).requests_running, 1);
  core.residency.suspend(kDevice, kEngine, 3);
  const ModelStatus shown = status(core, kEngine);
  EXPECT_TRUE(shown.external);
  EXPECT_EQ(shown.residency, core::Residency::kAbsent);
  EXPECT_FALSE(shown.device);
  EXPECT_EQ(shown.requests_running, 0);
  EXPECT_EQ(shown.requests_waiting, 2);
  const DeviceStatus there = device(core);
  ASSERT_EQ(there.residents.size(), 1U);
  EXPECT_EQ(there.residents[0].residency, core::Residency::kAbsent);
  EXPECT_EQ(there.residents[0].weights_pages, 3) << "that it holds still";
}

TEST(Status, WhatIsKnownOfAModelIsShown) {
  TestState core;
  core.catalog.image({.model = kA, .bytes = 70, .host_cached = true});
  core.attempts.failed(kA, {Code::kUnavailable, "disk"});
  core.load(kA, kDevice, LoadReason::kOperator);
  core.model(kA).config.slo = {.ttft = 700ms};
  const ModelStatus shown = status(core, kA);
  EXPECT_EQ(shown.name, "a");
  EXPECT_EQ(shown.loaded_bytes, 70U);
  EXPECT_TRUE(shown.host_cached);
  ASSERT_TRUE(shown.failure);
  EXPECT_EQ(shown.failure->message, "disk");
  EXPECT_EQ(shown.loads.at(static_cast<std::size_t>(LoadReason::kOperator)), 1U);
  EXPECT_EQ(shown.objectives.ttft, 700ms);
}

TEST(Status, AForecastHasNoErrorBeforeItWasJudged) {
  TestState core;
  EXPECT_EQ(status(core, kA).demand.error, std::nullopt);
  LoadRemembered remembered{.model = kA};
  for (std::int64_t window = 0; window < 10; ++window) {
    remembered.windows.emplace_back(window, policy::Load{.mean = 2, .peak = 3});
  }
  core.demand.remember(remembered);
  ASSERT_TRUE(status(core, kA).demand.error);
  EXPECT_LT(*status(core, kA).demand.error, 0.01);
  EXPECT_DOUBLE_EQ(status(core, kA).demand.expected_mean, 2);
}

// ---- Sharded models ----

struct Sharded : TestState {
  Sharded() : TestState(2) { add_group(); }
};

TEST(Status, AShardedModelIsListedOnceWithWhatAllItsShardsHave) {
  Sharded core;
  EXPECT_EQ(model_statuses(core.state).size(), 4U);
  core.serve_group();
  core.at(kGroup).kv_pages = core.at(kShard, kOther).kv_pages = 3;
  core.catalog.image({.model = kGroup, .bytes = 70, .host_cached = true});
  EXPECT_FALSE(status(core, kGroup).host_cached) << "the other shard is not";
  core.catalog.image({.model = kShard, .bytes = 20, .host_cached = true});
  const ModelStatus shown = status(core, kGroup);
  EXPECT_TRUE(shown.host_cached);
  EXPECT_EQ(shown.image_bytes, 2 * kImagePages * kPageBytes);
  EXPECT_EQ(shown.loaded_bytes, 90U);
  EXPECT_EQ(shown.peers, std::vector{kOther});
  EXPECT_EQ(shown.kv_pages, 6) << "as many on each";
}

TEST(Status, AStagedGroupIsWarmWhenAllItsShardsAreComplete) {
  Sharded core;
  core.stage(kGroup);
  EXPECT_EQ(status(core, kGroup).residency, core::Residency::kLoading) << "the other is not there";
  core.stage(kShard, false);
  EXPECT_EQ(status(core, kGroup).residency, core::Residency::kLoading);
  EXPECT_EQ(device(core, kOther).residents.at(0).residency, core::Residency::kLoading);
  core.at(kShard, kOther).complete = true;
  EXPECT_EQ(device(core, kOther).residents.at(0).residency, core::Residency::kWarm);
  EXPECT_EQ(status(core, kGroup).residency, core::Residency::kWarm);
}

// ---- Devices ----

TEST(Status, ADeviceIsShownWithWhatIsThere) {
  TestState core;
  core.add_engine();
  core.serve(kA);
  core.at(kA).kv_pages = 3;
  core.run(kA);
  core.serve(kEngine);
  const DeviceStatus shown = device(core);
  EXPECT_EQ(shown.name, "d0");
  EXPECT_TRUE(shown.up);
  EXPECT_EQ(shown.epoch, WorkerEpoch(1));
  EXPECT_EQ(shown.page_bytes, kPageBytes);
  ASSERT_EQ(shown.residents.size(), 2U);
  EXPECT_EQ(shown.residents[0].model, "a");
  EXPECT_EQ(shown.residents[0].residency, core::Residency::kServing);
  EXPECT_EQ(shown.residents[0].requests_running, 1);
  EXPECT_EQ(shown.residents[0].weights_pages, kImagePages);
  EXPECT_EQ(shown.residents[0].kv_pages, 3);
  EXPECT_TRUE(shown.residents[1].external);
  EXPECT_EQ(shown.residents[1].weights_pages, kEnginePages) << "all that it holds";
  EXPECT_EQ(shown.residents[1].kv_pages, 0);
}

TEST(Status, AShardInItsGroupIsShownAsItsLeaderIs) {
  Sharded core;
  core.model(kShard).config.name = "rank 1";
  core.serve_group();
  core.run(kGroup);
  core.at(kGroup).kv_pages = core.at(kShard, kOther).kv_pages = 3;
  const DeviceStatus shown = device(core, kOther);
  ASSERT_EQ(shown.residents.size(), 1U);
  EXPECT_EQ(shown.residents[0].model, "sharded");
  EXPECT_EQ(shown.residents[0].residency, core::Residency::kServing);
  EXPECT_EQ(shown.residents[0].requests_running, 1);
  EXPECT_EQ(shown.residents[0].kv_pages, 3);
  core.residency.lose(kDevice, kGroup);
  EXPECT_EQ(device(core, kOther).residents[0].residency, core::Residency::kDraining)
      << "without its leader it is as it is";
}

TEST(Status, ADeviceWithAShardIsShownAsItsWorkerCounts) {
  const auto apart = static_cast<std::size_t>(ledger::LeaseKind::kShardPipe);
  Sharded core;
  core.serve_group();
  ledger::PoolUsage usage{.total = 20, .free = 8};
  usage.by_kind.at(apart) = {.reserved = 4, .held = 4};
  core.devices.usage(kOther, usage);
  EXPECT_EQ(device(core, kOther).usage, usage);
}

// ---- Invariants ----

TEST(Status, AStateThatContradictsItselfIsABug) {
  const std::vector<std::function<void(TestState&)>> bugs{
      [](TestState& core) { ++core.model(kA).requests; },
      [](TestState& core) { core.model(kA).waiting.clear(); },
      [](TestState& core) { core.at(kA).in_flight.clear(); },
      [](TestState& core) { core.at(kB).in_flight.insert(core.wait(kB)); },
      [](TestState& core) { core.device().up = false; },
      [](TestState& core) { core.residency.suspend(kDevice, kB, 0); },
      [](TestState& core) { core.load(kA); },
      [](TestState& core) { core.device().config.pages = kImagePages; },
      [](TestState& core) {
        core.residency.begin_load(kDevice, kC, LoadReason::kRequest, {.leader = kOther});
      },
      [](TestState& core) { core.queues.keep_alone(kDevice, RequestId(99)); },
      [](TestState& core) { core.plans.begin(kDevice, kA, {}); },
      [](TestState& core) { core.device().claimed = kA; },
      [](TestState& core) { core.state.models.erase(kB); }};
  for (std::size_t i = 0; i < bugs.size(); ++i) {
    TestState core;
    core.serve(kA);
    core.serve(kB);
    core.run(kA);
    core.wait(kA);
    check_invariants(core.state);
    bugs[i](core);
    EXPECT_DEATH(check_invariants(core.state), "") << i;
  }
}

TEST(Status, WhereItsWorkerIsDownOnlyAnEngineMayBe) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.devices.down(kDevice);
  check_invariants(core.state);
  core.residency.suspend(kDevice, kEngine, 0);
  check_invariants(core.state);
}

}  // namespace
}  // namespace heddle::core::manager
