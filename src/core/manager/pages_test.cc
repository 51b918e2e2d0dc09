#include "core/manager/pages.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::kUnknown;
using test::TestState;

TEST(Pages, AModelHoldsItsWeightsItsKvAndWhatItNeedsOfAWorkspace) {
  TestState core;
  set_overhead_pages(core, kA, kDevice, 3);
  EXPECT_EQ(pages_of(core.state, core.device(), kA), 8 + 3 + 1) << "before it is there";
  EXPECT_EQ(pages_of(core.state, core.device(), kA, 2), 8 + 1 + 1) << "beside one of two pages";
  EXPECT_EQ(pages_of(core.state, core.device(), kA, 5), 8 + 1);
  core.serve(kA);
  core.residency.hold_pages(kDevice, kA, 4);
  EXPECT_EQ(pages_of(core.state, core.device(), kA, 5), 8 + 4);
}

TEST(Pages, AnEngineHoldsAllThatItMayUntilItStandsBy) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.residency.hold_pages(kDevice, kEngine, 5);
  EXPECT_EQ(pages_of(core.state, core.device(), kEngine), 12) << "it may grow";
  core.residency.hold_pages(kDevice, kEngine, 14);
  EXPECT_EQ(pages_of(core.state, core.device(), kEngine), 14);
  core.residency.suspend(kDevice, kEngine, 5);
  EXPECT_EQ(pages_of(core.state, core.device(), kEngine), 5);
}

TEST(Pages, AWorkspaceIsThatOfAModelThatIsKnownThere) {
  TestState core(2);
  core.add_engine();
  core.configuration.models[0].footprints.at(kDevice).overhead_pages = 3;
  core.configure();
  EXPECT_EQ(workspace_of(core.state, core.device(), kA), 3);
  EXPECT_EQ(workspace_of(core.state, core.device(), kEngine), 0);
  EXPECT_EQ(workspace_of(core.state, core.device(kOther), kEngine), 0) << "it may not be there";
  EXPECT_EQ(workspace_of(core.state, core.device(), kUnknown), 0);
  EXPECT_EQ(core.device().workspace, 3) << "though it is not loaded";
  EXPECT_EQ(core.device(kOther).workspace, 0);
}

TEST(Pages, AnEvictionOfAModelOfOursCountsAsDone) {
  TestState core;
  EXPECT_EQ(free_pages(core.state, core.device()), 20);
  core.serve(kA);
  core.serve(kB);
  EXPECT_EQ(free_pages(core.state, core.device()), 2);
  core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kIdle);
  EXPECT_EQ(free_pages(core.state, core.device()), 11);
}

TEST(Pages, AnEngineHasItsPagesUntilItHasLeft) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.residency.evict(kDevice, kEngine, EvictMode::kWhenIdle, EvictionReason::kIdle);
  EXPECT_EQ(free_pages(core.state, core.device()), 8);
  core.residency.suspend(kDevice, kEngine, 2);
  EXPECT_EQ(free_pages(core.state, core.device()), 18);
}

TEST(Pages, AGroupLeavesNothingAndStagedShardsDo) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  EXPECT_EQ(free_pages(core.state, core.device()), 0);
  EXPECT_EQ(free_pages(core.state, core.device(kOther)), 0);
  core.residency.evict_here(kDevice, kGroup, EvictMode::kWhenIdle, EvictionReason::kIdle);
  EXPECT_EQ(free_pages(core.state, core.device()), 20);

  TestState staged(2);
  staged.add_group();
  staged.stage(kShard);
  EXPECT_EQ(free_pages(staged.state, staged.device(kOther)), 11);
}

TEST(Pages, TheLongestRequestIsWhatFitsBesideTheWeightsUpToTheContext) {
  TestState core;
  EXPECT_EQ(tokens_max(core.state, kA, kDevice), 12 * 8);
  set_overhead_pages(core, kA, kDevice, 2);
  EXPECT_EQ(tokens_max(core.state, kA, kDevice), 10 * 8);
  core.model(kA).config.context = 50;
  EXPECT_EQ(tokens_max(core.state, kA, kDevice), 50);
  core.device().config.pages = 10;
  EXPECT_EQ(tokens_max(core.state, kA, kDevice), 0) << "it cannot be loaded";
}

TEST(Pages, WhatIsNotKnownThereHasNoTokens) {
  TestState core(2);
  core.add_engine();
  EXPECT_EQ(tokens_max(core.state, kUnknown, kDevice), 0);
  EXPECT_EQ(tokens_max(core.state, kUnknown), 0);
  EXPECT_EQ(tokens_max(core.state, kEngine, kOther), 0);
  EXPECT_EQ(tokens_max(core.state, kEngine), 1000) << "its own affair";
  set_image_pages(core, kEngine, kDevice, 21);
  EXPECT_EQ(tokens_max(core.state, kEngine), 0);
}

TEST(Pages, TheBestDeviceCountsAndOfAGroupTheLeastRoomyShard) {
  TestState core(4);
  core.add_group();
  core.resize(DeviceId(1), 30);
  EXPECT_EQ(tokens_max(core.state, kA), 22 * 8);
  EXPECT_EQ(tokens_max(core.state, kGroup, kDevice), 12 * 8);
  core.resize(DeviceId(3), 12);
  EXPECT_EQ(tokens_max(core.state, kGroup, DeviceId(2)), 4 * 8);
  EXPECT_EQ(tokens_max(core.state, kGroup), 12 * 8);
  EXPECT_EQ(tokens_max(core.state, kShard, kDevice), 0) << "it is not led from there";
}

}  // namespace
}  // namespace heddle::core::manager
