#include "core/manager/devices.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::TestState;

TEST(Devices, ANewWorkerStartsAfresh) {
  TestState core;
  core.devices.version(kDevice, 5);
  core.devices.refused(kDevice);
  core.devices.usage(kDevice, {.total = 20});
  EXPECT_EQ(core.device().restarts, 0U) << "the first worker is no restart";
  core.devices.down(kDevice);
  EXPECT_FALSE(core.device().up);
  EXPECT_EQ(core.device().usage.total, 0);
  core.devices.up({.device = kDevice, .epoch = WorkerEpoch(9)});
  EXPECT_TRUE(core.device().up);
  EXPECT_EQ(core.device().epoch, WorkerEpoch(9));
  EXPECT_EQ(core.device().version, 0U);
  EXPECT_EQ(core.device().refusals, 0);
  EXPECT_EQ(core.device().paused_until, core.state.now);
  EXPECT_EQ(core.device().restarts, 1U);
}

TEST(Devices, WorkersComeOneAfterTheOther) {
  TestState core;
  EXPECT_DEATH(core.devices.up({.device = kDevice, .epoch = WorkerEpoch(9)}), "up");
  core.devices.down(kDevice);
  core.devices.up({.device = kDevice, .epoch = core.device().epoch});
  EXPECT_EQ(core.device().restarts, 0U) << "it was out of sight, and not dead";
}

TEST(Devices, RefusalsInARowPauseADeviceForLongerAndLonger) {
  TestState core;
  for (const Duration pause : {100ms, 200ms, 400ms}) {
    core.devices.refused(kDevice);
    EXPECT_EQ(core.device().paused_until, core.state.now + pause);
  }
  core.devices.accepted(kDevice);
  core.devices.refused(kDevice);
  EXPECT_EQ(core.device().paused_until, core.state.now + 100ms);
  for (int i = 0; i < 20; ++i) {
    core.devices.refused(kDevice);
  }
  EXPECT_EQ(core.device().paused_until, core.state.now + 10s) << "the cooldown is the most";
  core.devices.pause(kDevice, core.state.now + 1s);
  EXPECT_EQ(core.device().paused_until, core.state.now + 1s);
}

/// What a second adds to the device's times.
std::pair<Duration, Duration> second(TestState& core, DeviceId id = kDevice) {
  const auto used = [&](DeviceUse use) { return time_used(core.state, core.device(id), use); };
  const std::pair before(used(DeviceUse::kServing), used(DeviceUse::kSwitching));
  core.pass(1s);
  return {used(DeviceUse::kServing) - before.first, used(DeviceUse::kSwitching) - before.second};
}

TEST(Devices, TimeIsServingWhileARequestRunsElseSwitchingWhileModelsComeAndGo) {
  const std::pair<Duration, Duration> serving{1s, 0s};
  const std::pair<Duration, Duration> switching{0s, 1s};
  const std::pair<Duration, Duration> neither{0s, 0s};
  TestState core;
  EXPECT_EQ(second(core), neither) << "empty";
  core.serve(kA);
  EXPECT_EQ(second(core), neither) << "idle";
  core.load(kB);
  EXPECT_EQ(second(core), switching);
  const RequestId id = core.run(kA);
  EXPECT_EQ(second(core), serving) << "though another comes";
  core.finish(id);
  core.serve(kB);
  EXPECT_EQ(second(core), neither);
  core.plans.begin(kDevice, test::kC, {});
  EXPECT_EQ(second(core), switching) << "a load waits";
}

TEST(Devices, AnEngineThatStandsByIsNeither) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.run(kEngine);
  core.residency.suspend(kDevice, kEngine, 3);
  EXPECT_EQ(second(core), (std::pair<Duration, Duration>{0s, 0s}));
}

TEST(Devices, AllDevicesOfAGroupServeWhenItsLeaderDoes) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.run(kGroup);
  EXPECT_EQ(second(core, kOther).first, 1s);
  core.residency.lose(kDevice, kGroup);
  EXPECT_EQ(second(core, kOther), (std::pair<Duration, Duration>{0s, 0s}));
}

TEST(Devices, OneThatStartsHasAllItsPagesButThoseThatAreLent) {
  TestState core(2);
  EXPECT_EQ(core.device().usage.free, test::kPages);
  core.guests.lend(kDevice, test::kOther, test::kA, 5, "why");
  core.guests.heard({.device = kDevice, .model = test::kA, .pages = 5});
  core.devices.down(kDevice);
  core.devices.up({.device = kDevice, .epoch = WorkerEpoch(9)});
  EXPECT_EQ(core.device().usage.total, test::kPages - 5);
  EXPECT_EQ(core.device().usage.free, test::kPages - 5);
}

}  // namespace
}  // namespace heddle::core::manager
