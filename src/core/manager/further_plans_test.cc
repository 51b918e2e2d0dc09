#include "core/manager/further_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/test_cuts.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using policy::PlanKind;
using test::FourHosts;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kOther;
using test::TestState;
using testing::HasSubstr;

Spot spot_of(const TestState& core, DeviceId id) {
  const DeviceState& device = core.state.devices.at(id);
  return {.id = id, .device = &device, .instance = &device.instances.at(kA)};
}

std::vector<PlanKind> kinds(const std::vector<policy::Plan>& plans) {
  std::vector<PlanKind> all;
  for (const policy::Plan& plan : plans) {
    all.push_back(plan.kind);
  }
  return all;
}

TEST(FurtherPlans, WhatIsLeftOfALoadIsWhatItUsuallyTakesLessWhatItHasTaken) {
  TestState core;
  core.model(kA).load_times = {4s, 1s};
  core.load(kA);
  core.pass(1500ms);
  EXPECT_EQ(still_to_load(core.state, spot_of(core, kDevice), kA), 2500ms);
  core.pass(5s);
  EXPECT_EQ(still_to_load(core.state, spot_of(core, kDevice), kA), 0s);
}

TEST(FurtherPlans, AFetchGoesOnForWhatItsHostHasYetToFetch) {
  FourHosts core;
  core.load(kA, FourHosts::at_host(1));
  core.pass(2s);
  core.fetches.advance();
  EXPECT_EQ(still_to_load(core.state, spot_of(core, FourHosts::at_host(1)), kA), 6s);
}

TEST(FurtherPlans, WhoIsThirdOfThoseThatWaitWaitsForThreeToEnd) {
  TestState core;
  core.serve(kA);
  for (int i = 0; i < 7; ++i) {
    core.run(kA);
  }
  const double service = core.model(kA).demand.mean_service();
  // Four run, which is what a device should bear, and three wait.
  EXPECT_EQ(queue_time(core.state, spot_of(core, kDevice), kA), from_seconds(service * 3 / 4));
  TestState idle;
  idle.serve(kA);
  EXPECT_EQ(queue_time(idle.state, spot_of(idle, kDevice), kA), 0s);
}

TEST(FurtherPlans, EachWayToHaveItAnsweredIsInTheList) {
  TestState core(3);
  (void)static_cast<const Parts&>(core.parts);
  core.serve(kA);
  EXPECT_EQ(kinds(plans_beside(core.state, kA)),
            (std::vector{PlanKind::kHit, PlanKind::kActivate}));
  core.run(kA);
  core.load(kA, kOther);
  EXPECT_EQ(kinds(plans_beside(core.state, kA)),
            (std::vector{PlanKind::kQueue, PlanKind::kAttach, PlanKind::kActivate}));
}

TEST(FurtherPlans, WhoWasNotTakenIsToldWithItsTime) {
  TestState core(2);
  core.model(kA).load_times = {4s, 4s};
  core.serve(kA);
  core.run(kA);
  const std::string text = describe_beside(core.state, kA, PlanKind::kQueue);
  EXPECT_THAT(text, HasSubstr("; instead of activate on d1 (4.00 s: comes later)"));
  const std::string other = describe_beside(core.state, kA, PlanKind::kActivate, kOther);
  EXPECT_THAT(other, HasSubstr("queue on d0 ("));
  EXPECT_THAT(other, HasSubstr("others wait there for as long as one more takes"));
}

TEST(FurtherPlans, WhatComesIsLeftForWhatComesSoonerByMoreThanALoad) {
  FourHosts core;
  core.want(100ms);
  core.load(kA, FourHosts::at_host(1));
  core.wait(kA);
  (void)static_cast<const Parts&>(core.parts);
  EXPECT_FALSE(sooner_elsewhere(core.state, kA)) << "any host would fetch for as long";
  // Host 3 gets the files meanwhile, and reads them in 80 ms.
  core.model(kA).images[HostId(3)] = {.bytes = test::kImagePages * test::kPageBytes,
                                      .cached = true};
  const auto place = sooner_elsewhere(core.state, kA);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->device, FourHosts::at_host(3));
  core.serve(kA, FourHosts::at_host(1));
  EXPECT_FALSE(sooner_elsewhere(core.state, kA)) << "it serves";
}

TEST(FurtherPlans, WhatComesInTimeIsWaitedFor) {
  FourHosts core;
  core.want(10s);
  core.load(kA, FourHosts::at_host(1));
  core.wait(kA);
  core.model(kA).images[HostId(3)] = {.bytes = test::kImagePages * test::kPageBytes,
                                      .cached = true};
  (void)static_cast<const Parts&>(core.parts);
  EXPECT_FALSE(sooner_elsewhere(core.state, kA));
}

TEST(FurtherPlans, AnEngineComesOnce) {
  TestState core(2);
  core.add_engine();
  core.model(kEngine).load_times = {40s, 40s};
  core.load(kEngine);
  core.wait(kEngine);
  (void)static_cast<const Parts&>(core.parts);
  EXPECT_FALSE(sooner_elsewhere(core.state, kEngine));
  ASSERT_TRUE(attach_plan(core.state, kEngine));
  EXPECT_EQ(attach_plan(core.state, kEngine)->load, 40s);
}

TEST(FurtherPlans, NobodyAttachesToWhatServesOrIsNowhere) {
  TestState core;
  EXPECT_FALSE(attach_plan(core.state, kB));
  core.serve(kB);
  EXPECT_FALSE(attach_plan(core.state, kB));
}

}  // namespace
}  // namespace heddle::core::manager
