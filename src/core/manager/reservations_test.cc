#include "core/manager/reservations.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager::test {
namespace {

using namespace std::chrono_literals;

/// Devices by the model that each is kept for.
std::map<DeviceId, ModelId> kept(const State& state) {
  std::map<DeviceId, ModelId> all;
  for (const auto& [id, device] : state.devices) {
    if (device.reserved) {
      all[id] = device.reserved->model;
    }
  }
  return all;
}

TEST(ManagerReservations, AModelHasAllItsDevicesOrNone) {
  TestState core(4);
  const Instant since = core.state.now - 3s;
  core.reservations.keep(kA, since, {{kA, DeviceId(0)}, {kA, DeviceId(1)}}, {});
  core.reservations.keep(kB, since + 1s, {{kB, DeviceId(1)}, {kB, DeviceId(2)}}, {});
  core.reservations.keep(kC, since + 2s, {{kC, DeviceId(3)}}, {});
  core.reservations.settle();
  EXPECT_EQ(kept(core.state),
            (std::map<DeviceId, ModelId>{{DeviceId(0), kA}, {DeviceId(1), kA}, {DeviceId(3), kC}}));
}

TEST(ManagerReservations, WhatNobodyNamesAgainIsKeptForNobody) {
  TestState core(2);
  core.reservations.keep(kA, core.state.now, {{kA, DeviceId(0)}, {kA, DeviceId(1)}}, {});
  core.reservations.settle();
  core.reservations.keep(kB, core.state.now, {{kB, DeviceId(1)}}, {});
  core.reservations.settle();
  EXPECT_EQ(kept(core.state), (std::map<DeviceId, ModelId>{{DeviceId(1), kB}}));
  core.reservations.settle();
  EXPECT_TRUE(kept(core.state).empty());
}

TEST(ManagerReservations, PeopleAreToldOnce) {
  TestState core(2);
  for (int look = 0; look < 3; ++look) {
    core.reservations.keep(
        kA, core.state.now - 3s, {{kA, DeviceId(0)}, {kA, DeviceId(1)}}, core.state.now + 1s);
    core.reservations.settle();
  }
  const std::vector<Decision> notes = core.decisions(DecisionKind::kWait);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].model, kA);
  EXPECT_NE(notes[0].why.find("d0+d1 are kept for it"), std::string::npos) << notes[0].why;
  EXPECT_EQ(core.device().reserved->from, core.state.now + 1s);
}

TEST(ManagerReservations, AnEngineNeedsWhatItLacksOfEach) {
  TestState core(2);
  add_wide_engine(core);
  core.reservations.keep(kWide, core.state.now, {{kWide, kDevice}, {kWide, kOther}}, {});
  EXPECT_EQ(core.device(kDevice).reserved->pages, kEnginePages);
  EXPECT_EQ(core.device(kOther).reserved->pages, kEnginePages);
}

}  // namespace
}  // namespace heddle::core::manager::test
