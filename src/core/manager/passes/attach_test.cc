#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_cuts.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::FourHosts;
using test::kA;
using test::kDevice;
using test::Spots;
using test::TestState;
using testing::HasSubstr;

/// A model comes by forecast, in a second, and a request waits for it.
struct Coming : TestState {
  Coming() {
    model(kA).load_times = {1s, 1s};
    load(kA, kDevice, LoadReason::kForecast);
    pass(400ms);
    request = wait(kA);
    commands.clear();
  }
  RequestId request{};
};

TEST(Attach, ARequestThatWaitsForWhatIsOnItsWayIsToldWhenItsFirstTokenComes) {
  Coming core;
  attach(core.parts);
  const std::vector<Decision> said = core.decisions(DecisionKind::kWait);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].first_token, 600ms);
  EXPECT_EQ(said[0].device, kDevice);
  EXPECT_THAT(said[0].why, HasSubstr("a request waits; attach, first token in 600 ms"));
  attach(core.parts);
  EXPECT_EQ(core.decisions(DecisionKind::kWait).size(), 1U) << "once";
}

TEST(Attach, WhatItTookIsMeasured) {
  Coming core;
  attach(core.parts);
  core.pass(600ms);
  core.serve(kA);
  core.queues.send(core.request, kDevice, std::nullopt);
  core.commands.clear();
  core.queues.finish({.request = core.request, .ttft = 700ms});
  const std::vector<PlanMeasured> measured = core.all<PlanMeasured>();
  ASSERT_EQ(measured.size(), 1U);
  EXPECT_EQ(measured[0].kind, policy::PlanKind::kAttach);
  EXPECT_EQ(measured[0].predicted, 600ms);
  EXPECT_EQ(measured[0].took, 700ms);
}

TEST(Attach, NothingIsSaidWhereNobodyKnowsOrNothingComes) {
  Coming unknown;
  unknown.model(kA).load_times = {};
  Coming serves;
  serves.serve(kA);
  Coming overdue;
  overdue.pass(1s);
  for (Coming* core : {&unknown, &serves, &overdue}) {
    attach(core->parts);
    EXPECT_TRUE(core->decisions(DecisionKind::kWait).empty());
  }
}

/// A host fetches the model for eight seconds; meanwhile another has it in memory.
struct Overtaken : FourHosts {
  Overtaken() {
    want(100ms);
    state.options.planner.replicas = true;
    load(kA, at_host(1));
    wait(kA);
    model(kA).images[HostId(3)] = {.bytes = test::kImagePages * test::kPageBytes, .cached = true};
    commands.clear();
  }
};

TEST(Attach, WhoWouldBeAnsweredMuchSoonerElsewhereIs) {
  Overtaken core;
  overtake(core.parts);
  EXPECT_EQ(core.loads(), (Spots{{FourHosts::at_host(3), kA}}));
  EXPECT_THAT(core.decisions(DecisionKind::kLoad).at(0).why,
              HasSubstr("instead of attach on h1 (8.00 s"));
  core.commands.clear();
  overtake(core.parts);
  EXPECT_TRUE(core.loads().empty()) << "that is on its way";
}

TEST(Attach, NothingIsAddedWhereModelsHaveOneInstanceNorWhileTheServerShutsDown) {
  Overtaken one;
  one.state.options.planner.replicas = false;
  Overtaken ending;
  ending.state.drain_deadline = ending.state.now + 1s;
  for (Overtaken* core : {&one, &ending}) {
    overtake(core->parts);
    attach(core->parts);
    EXPECT_TRUE(core->loads().empty());
  }
}

}  // namespace
}  // namespace heddle::core::manager
