// External engines on several devices: what the parts of the core make of them.

#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/external_engines.h"
#include "core/manager/passes/passes.h"
#include "core/manager/status.h"
#include "core/manager/test_state.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kEnginePages;
using test::kOther;
using test::kPages;
using test::kWide;
using test::Spots;
using test::TestState;

/// An engine on both devices, neither of which has room for it and a model of ours.
struct Wide : TestState {
  explicit Wide(int count = 2) : TestState(count) { test::add_wide_engine(*this); }
  void check() const { check_invariants(state); }
};

/// A request waits for it, and a and b are in its way, a with a request of its own.
struct WideWaits : Wide {
  WideWaits() {
    serve(kA, kDevice);
    serve(kB, kOther);
    request = run(kA);
    waits = wait(kWide);
    commands.clear();
  }
  RequestId request{};
  RequestId waits{};
};

// ---- One engine, several devices ----

TEST(WideEngine, IsTheSameOnAllItsDevices) {
  Wide core;
  core.devices.version(kOther, 7);
  core.residency.load(kDevice, kWide, {}, LoadReason::kRequest, "because");
  ASSERT_EQ(core.loads(), (Spots{{kDevice, kWide}, {kOther, kWide}}));
  EXPECT_EQ(core.all<LoadOn>()[1].basis, (Basis{.epoch = WorkerEpoch(2), .version = 7}));
  EXPECT_TRUE(core.at(kWide, kOther).is<Loading>());
  core.serve(kWide);
  EXPECT_TRUE(core.at(kWide, kOther).is<Serving>());
  EXPECT_EQ(core.at(kWide, kOther).kv_pages, kEnginePages);
  core.check();
  core.residency.suspend(kDevice, kWide, 3);
  EXPECT_TRUE(core.at(kWide, kOther).is<Suspended>());
  EXPECT_EQ(core.at(kWide, kOther).kv_pages, 3);
  core.check();
  core.residency.lose(kDevice, kWide);
  EXPECT_FALSE(core.there(kWide, kOther));
  core.check();
}

TEST(WideEngine, GetsRequestsOnItsFirstDeviceAlone) {
  Wide core;
  core.serve(kWide);
  EXPECT_EQ(serving_places(core.state, kWide), (std::vector<DeviceId>{kDevice}));
  core.run(kWide);
  EXPECT_EQ(core.device(kOther).use, DeviceUse::kServing);
  core.check();
}

TEST(WideEngine, GoesFromAllDevicesWithOneOrder) {
  Wide core;
  core.serve(kWide);
  core.residency.evict(kOther, kWide, EvictMode::kWhenIdle, EvictionReason::kDisplaced, kB, 5);
  core.residency.evict(kDevice, kWide, EvictMode::kWhenIdle, EvictionReason::kDisplaced, kA, 5);
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kWide}}));
  EXPECT_TRUE(core.at(kWide, kOther).is<Evicting>());
}

TEST(WideEngine, IsSeenOnEachOfItsDevices) {
  Wide core;
  core.serve(kWide);
  core.run(kWide);
  const std::vector<ModelStatus> models = model_statuses(core.state);
  const auto wide = std::ranges::find(models, kWide, &ModelStatus::id);
  EXPECT_EQ(wide->device, kDevice);
  EXPECT_EQ(wide->peers, (std::vector<DeviceId>{kOther}));
  EXPECT_EQ(wide->requests_running, 1);
  for (const DeviceStatus& device : device_statuses(core.state)) {
    ASSERT_EQ(device.residents.size(), 1U);
    EXPECT_EQ(device.residents[0].weights_pages, kEnginePages);
    EXPECT_EQ(device.residents[0].residency, core::Residency::kServing);
  }
}

TEST(WideEngine, IsBusyAsAVictimWhereverItIs) {
  Wide core;
  core.serve(kWide);
  core.run(kWide);
  core.model(kWide).config.min_residence = 3s;
  for (const DeviceId id : {kDevice, kOther}) {
    const policy::PlacementDevice place = view(core.state, core.device(id), kA);
    ASSERT_EQ(place.residents.size(), 1U);
    EXPECT_EQ(place.residents[0].queue, 1);
    EXPECT_EQ(place.residents[0].min_residence, 3s);
    EXPECT_EQ(place.free_pages, kPages - kEnginePages);
  }
}

TEST(WideEngine, WhoseHostWasCutOffIsFoundOnAllItsDevices) {
  Wide core;
  ExternalEngines engines(core.state);
  engines.hear(core.parts,
               EngineSaid{.device = kDevice,
                          .model = kWide,
                          .news = EngineNews::kServing,
                          .held_pages = kEnginePages});
  EXPECT_TRUE(core.at(kWide, kOther).is<Serving>());
  core.check();
  engines.hear(core.parts, HostLost{.host = HostId(0)});
  EXPECT_FALSE(core.there(kWide, kDevice));
  EXPECT_FALSE(core.there(kWide, kOther));
}

TEST(WideEngine, ThatNeedsMoreThanOneOfItsDevicesHasCanBeNowhere) {
  Wide core;
  core.resize(kOther, kEnginePages - 1);
  core.wait(kWide);
  place(core.parts);
  EXPECT_EQ(core.failed().size(), 1U);
}

// ---- Making room ----

TEST(WideEngine, ComesOnceAllItsDevicesAreClear) {
  WideWaits core;
  core.plans.begin(kDevice, kWide, {kA, kB});
  core.check();
  EXPECT_TRUE(core.at(kA, kDevice).is<Draining>());
  core.plans.advance();
  EXPECT_TRUE(core.loads().empty());
  EXPECT_TRUE(core.evictions().empty()) << "b goes when a can";
  core.finish(core.request);
  core.plans.advance();
  EXPECT_EQ(core.evictions(), (Spots{{kOther, kB}, {kDevice, kA}}));
  EXPECT_EQ(core.loads(), (Spots{{kDevice, kWide}, {kOther, kWide}}));
  EXPECT_FALSE(core.device(kDevice).plan);
  EXPECT_FALSE(core.device(kOther).plan);
}

TEST(WideEngine, WhatLeavesSoonerGoesOnUntilAllCanLeaveAtOnce) {
  WideWaits core;
  core.plans.begin(kDevice, kWide, {kA, kB});
  core.plans.advance();
  EXPECT_TRUE(core.at(kB, kOther).is<Serving>()) << "nobody can use its device yet";
  const Duration answer = from_seconds(core.model(kA).demand.mean_service());
  EXPECT_EQ(core.wake(), core.state.now + answer);
  core.pass(answer);
  core.plans.advance();
  EXPECT_TRUE(core.at(kB, kOther).is<Draining>());
  EXPECT_TRUE(core.evictions().empty());
  core.check();
}

TEST(WideEngine, ThatNobodyWantsAnyMoreLeavesAllDevicesAsTheyWere) {
  for (const bool forgotten : {false, true}) {
    WideWaits core;
    core.plans.begin(kDevice, kWide, {kA, kB});
    core.queues.cancel(core.waits);
    if (forgotten) {
      core.remove(kWide);
      core.catalog.forget_removed();
    }
    core.plans.advance();
    EXPECT_FALSE(core.device(kDevice).plan);
    EXPECT_FALSE(core.device(kOther).plan);
    EXPECT_TRUE(core.at(kA, kDevice).is<Serving>());
    EXPECT_TRUE(core.at(kB, kOther).is<Serving>());
  }
}

TEST(WideEngine, APlanEndsOnAllDevicesWhereOneIsLost) {
  WideWaits core;
  core.plans.begin(kDevice, kWide, {kA, kB});
  core.plans.cancel(kOther);
  EXPECT_FALSE(core.device(kDevice).plan);
  EXPECT_TRUE(core.at(kA, kDevice).is<Serving>());
}

TEST(WideEngine, TakesNoDeviceBeforeItCanHaveAll) {
  WideWaits core;
  core.model(kA).config.min_residence = 5s;
  core.pass(2s);
  place(core.parts);
  EXPECT_FALSE(core.device(kOther).plan);
  EXPECT_TRUE(core.at(kB, kOther).is<Serving>());
  core.pass(3s);
  place(core.parts);
  EXPECT_TRUE(core.device(kDevice).plan);
  EXPECT_TRUE(core.device(kOther).plan);
  core.check();
}

TEST(WideEngine, LeavesForAModelOnOneOfItsDevices) {
  Wide core;
  core.serve(kWide);
  const RequestId request = core.run(kWide);
  core.wait(kA);
  core.plans.begin(kOther, kA, {kWide});
  EXPECT_TRUE(core.at(kWide).is<Draining>());
  core.plans.advance();
  EXPECT_TRUE(core.evictions().empty()) << "its request runs";
  core.finish(request);
  core.plans.advance();
  EXPECT_EQ(core.evictions(), (Spots{{kDevice, kWide}}));
  core.residency.suspend(kDevice, kWide, 0);
  core.plans.advance();
  EXPECT_EQ(core.loads(), (Spots{{kOther, kA}}));
}

// ---- Reservations ----

/// The device that each is kept for.
std::map<DeviceId, ModelId> kept_for(const State& state) {
  std::map<DeviceId, ModelId> all;
  for (const auto& [id, device] : state.devices) {
    if (device.reserved) {
      all[id] = device.reserved->model;
    }
  }
  return all;
}

/// It has waited for longer than drain_after; a is not to be had for some time.
struct WideReserves : WideWaits {
  WideReserves() {
    model(kA).config.min_residence = 20s;
    pass(2s);
    place(parts);
    commands.clear();
  }
};

TEST(WideEngine, ThatHasWaitedHasItsDevicesKept) {
  WideWaits core;
  core.model(kA).config.min_residence = 20s;
  place(core.parts);
  EXPECT_TRUE(kept_for(core.state).empty());
  EXPECT_EQ(core.wake(), core.state.now + core.state.options.drain_after);
  core.pass(core.state.options.drain_after);
  place(core.parts);
  EXPECT_EQ(kept_for(core.state), (std::map<DeviceId, ModelId>{{kDevice, kWide}, {kOther, kWide}}));
  EXPECT_EQ(core.device(kOther).reserved->from, core.at(kA, kDevice).serving_since + 20s);
  core.check();
}

TEST(WideEngine, ItsDevicesAreKeptForNobodyOnceItIsNotWanted) {
  WideReserves core;
  core.queues.cancel(core.waits);
  place(core.parts);
  EXPECT_TRUE(kept_for(core.state).empty());
}

/// An engine of so many pages that is on the second device, and that a request waits for, too.
void add_later(WideReserves& core, std::int64_t pages, Duration swap_in) {
  core.add_engine(pages);
  core.model(kA).config.min_residence = 20s;  // Configured anew.
  set_need(core, kEngine, kOther, {.image_pages = pages});
  core.model(kEngine).footprints.erase_if([](DeviceId device) { return device == kDevice; });
  core.model(kEngine).swap_in = swap_in;
  core.residency.evict(kOther, kB, EvictMode::kWhenIdle, EvictionReason::kIdle);
  core.residency.lose(kOther, kB);
  core.wait(kEngine);
  core.commands.clear();
  place(core.parts);
}

TEST(WideEngine, IsNotOvertakenByWhatStaysForLong) {
  WideReserves core;
  add_later(core, kEnginePages, 10s);  // It would stay for 30 s.
  EXPECT_TRUE(core.loads().empty());
  EXPECT_EQ(core.model(kEngine).waits_for, policy::PlacementReason::kReserved);
}

TEST(WideEngine, IsOvertakenByWhatHasLeftByThen) {
  WideReserves core;
  add_later(core, kEnginePages, 2s);  // It can have left in 10 s.
  EXPECT_EQ(core.loads(), (Spots{{kOther, kEngine}}));
}

TEST(WideEngine, IsOvertakenByWhatLeavesItRoom) {
  WideReserves core;
  add_later(core, kPages - kEnginePages, 10s);
  EXPECT_EQ(core.loads(), (Spots{{kOther, kEngine}}));
}

TEST(WideEngine, WhatCameBeforeItGoesFirst) {
  Wide core(3);
  core.serve(kA, kDevice);
  core.serve(kB, kOther);
  core.run(kA);
  core.run(kB, kOther);
  core.add_engine();
  core.model(kA).config.min_residence = core.model(kB).config.min_residence = 20s;
  core.wait(kEngine);
  core.pass(1ms);
  core.wait(kWide);
  core.pass(2s);
  place(core.parts);
  EXPECT_EQ(kept_for(core.state), (std::map<DeviceId, ModelId>{{kDevice, kEngine}}))
      << "the second device is of no use to it before its turn on the first";
}

}  // namespace
}  // namespace heddle::core::manager
