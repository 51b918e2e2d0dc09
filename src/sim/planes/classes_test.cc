#include "sim/planes/classes.h"

#include <gtest/gtest.h>

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

ClassInputs inputs(double utilisation) {
  return {.utilisation = utilisation, .on_host = true, .activation = 2s};
}

TEST(WantedClass, TheFirstMatchWins) {
  ClassInputs all = inputs(0.9);
  all.external = true;
  EXPECT_EQ(wanted_class(all, ModelClass::kWarm), ModelClass::kExternal);
  all.external = false;
  all.on_host = false;
  EXPECT_EQ(wanted_class(all, ModelClass::kWarm), ModelClass::kHot) << "hot before tail";
  all.utilisation = 0.1;
  all.median_gap = 1h;
  EXPECT_EQ(wanted_class(all, ModelClass::kWarm), ModelClass::kTail) << "tail before cold";
  all.on_host = true;
  EXPECT_EQ(wanted_class(all, ModelClass::kWarm), ModelClass::kCold);
}

TEST(WantedClass, ColdFromGapsOfFiveActivations) {
  ClassInputs quiet = inputs(0.0);
  EXPECT_EQ(wanted_class(quiet, ModelClass::kWarm), ModelClass::kWarm) << "no gap known";
  quiet.median_gap = 9999ms;
  EXPECT_EQ(wanted_class(quiet, ModelClass::kWarm), ModelClass::kWarm);
  quiet.median_gap = 10s;
  EXPECT_EQ(wanted_class(quiet, ModelClass::kWarm), ModelClass::kCold);
}

TEST(WantedClass, HotIsLeftLowerThanItIsEntered) {
  EXPECT_EQ(wanted_class(inputs(0.49), ModelClass::kWarm), ModelClass::kWarm);
  EXPECT_EQ(wanted_class(inputs(0.5), ModelClass::kWarm), ModelClass::kHot);
  EXPECT_EQ(wanted_class(inputs(0.3), ModelClass::kHot), ModelClass::kHot);
  EXPECT_EQ(wanted_class(inputs(0.29), ModelClass::kHot), ModelClass::kWarm);
  ClassInputs parts = inputs(0.2);
  parts.parts = 2;
  EXPECT_EQ(wanted_class(parts, ModelClass::kWarm), ModelClass::kHot);
}

TEST(ClassKeeper, ChangesAfterThreeTicksThatAgree) {
  ClassKeeper keeper(ModelClass::kWarm);
  EXPECT_FALSE(keeper.tick(inputs(0.9)));
  EXPECT_FALSE(keeper.tick(inputs(0.9)));
  EXPECT_FALSE(keeper.tick(inputs(0.1))) << "starts over";
  EXPECT_FALSE(keeper.tick(inputs(0.9)));
  EXPECT_FALSE(keeper.tick(inputs(0.9)));
  EXPECT_EQ(keeper.present(), ModelClass::kWarm);
  EXPECT_TRUE(keeper.tick(inputs(0.9)));
  EXPECT_EQ(keeper.present(), ModelClass::kHot);
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(keeper.tick(inputs(0.4)));
  }
}

TEST(RunsDedicated, HotOnesAndThoseOfSeveralParts) {
  EXPECT_TRUE(runs_dedicated(ModelClass::kHot));
  EXPECT_FALSE(runs_dedicated(ModelClass::kCold));
  EXPECT_FALSE(runs_dedicated(ModelClass::kWarm));
  EXPECT_FALSE(runs_dedicated(ModelClass::kExternal)) << "a lease as a whole";
}

TEST(DeviceMode, FollowsFromTheLeases) {
  EXPECT_EQ(device_mode({}), DeviceMode::kIdle);
  EXPECT_EQ(device_mode({.droppable = 2}), DeviceMode::kUniversal);
  EXPECT_EQ(device_mode({.dedicated = 1, .droppable = 2}), DeviceMode::kDedicated);
  EXPECT_EQ(device_mode({.dedicated = 1, .draining = true}), DeviceMode::kGrace);
  EXPECT_EQ(device_mode({.shared = 3, .droppable = 1}), DeviceMode::kShared);
  EXPECT_EQ(device_mode({.stages = 1, .dedicated = 1}), DeviceMode::kShared);
  EXPECT_EQ(device_mode({.external = 1, .stages = 1}), DeviceMode::kExternal);
  EXPECT_EQ(name(DeviceMode::kUniversal), "universal");
  EXPECT_EQ(name(ModelClass::kTail), "tail");
}

TEST(ChoosePoolChange, GrowsAboveAndShrinksBelowTheBand) {
  const PoolOptions options{.grow_above = 10.0, .shrink_below = 5.0};
  const auto change = [&](const PoolView& view) { return choose_pool_change(view, options); };
  EXPECT_EQ(change({.max_pressure = 11.0, .universal = true}), PoolChange::kGrow);
  EXPECT_EQ(change({.max_pressure = 11.0}), PoolChange::kKeep) << "no device to take";
  EXPECT_EQ(change({.max_pressure = 1.0, .missing_for = 30s, .universal = true}),
            PoolChange::kGrow);
  EXPECT_EQ(change({.max_pressure = 1.0, .with_one_fewer = 4.9}), PoolChange::kShrink);
  EXPECT_EQ(change({.max_pressure = 1.0, .with_one_fewer = 5.0}), PoolChange::kKeep);
  EXPECT_EQ(change({.max_pressure = 1.0, .with_one_fewer = 1.0, .missing_for = 1s}),
            PoolChange::kKeep);
  EXPECT_EQ(change({.max_pressure = 7.0, .with_one_fewer = 8.0}), PoolChange::kKeep);
  EXPECT_EQ(change({.max_pressure = 1.0}), PoolChange::kKeep) << "it cannot do with fewer";
}

}  // namespace
}  // namespace heddle::sim
