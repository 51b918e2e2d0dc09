#include "core/manager/start_plans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/passes/passes.h"
#include "core/manager/test_cuts.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using policy::PlacementReason;
using policy::PlanKind;
using test::FourHosts;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kQuarters;
using test::TestState;
using testing::HasSubstr;
using testing::IsEmpty;

StartChoice choose(TestState& core, ModelId model) {
  (void)static_cast<const Parts&>(core.parts);  // What was done by hand is in the index.
  return choose_start(core.state, core.search, model, core.state.now);
}

/// Loads of the model take so long, and its first tokens then this.
void measure(TestState& core, ModelId model, Duration load, Duration prompt) {
  core.model(model).load_times = {load, load};
  core.demand.observe_warm(model, prompt, std::nullopt);
}

TEST(StartPlans, AFirstTokenIsPredictedFromWhatWasMeasured) {
  TestState core;
  measure(core, kA, 300ms, 20ms);
  core.wait(kA);
  const StartChoice choice = choose(core, kA);
  ASSERT_TRUE(choice.plans.best);
  EXPECT_EQ(choice.plans.best->kind, PlanKind::kActivate);
  EXPECT_EQ(choice.plans.best->reason, PlacementReason::kFreePages);
  EXPECT_EQ(choice.plans.best->ttft(), 320ms);
}

TEST(StartPlans, WhoWasNotTakenIsTold) {
  TestState core(2);
  core.serve(kA);
  core.serve(kB);
  measure(core, kC, 300ms, 20ms);
  core.wait(kC);
  const StartChoice choice = choose(core, kC);
  EXPECT_EQ(choice.placement.device, kOther);
  EXPECT_THAT(describe_others(core.state, kC, choice), HasSubstr("instead of idle_victims on d0"));
  EXPECT_THAT(describe_others(core.state, kC, choice), HasSubstr("320 ms"));
  EXPECT_EQ(choice.plans.best->where, kOther) << "what is said is what is done";
}

TEST(StartPlans, NothingIsToldOfFirstTokensThatNobodyWaitsFor) {
  TestState core(2);
  core.serve(kA);
  core.serve(kB);
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kC});
  EXPECT_THAT(describe_others(core.state, kC, choose(core, kC)), IsEmpty());
}

TEST(StartPlans, BusyModelsAreAPlanThatMayNotBeginYet) {
  TestState core(2);
  core.serve(kA);
  core.serve(kB);
  core.run(kA);
  core.run(kB);
  core.wait(kC);
  const StartChoice choice = choose(core, kC);
  EXPECT_EQ(choice.placement.device, kOther);
  EXPECT_THAT(describe_others(core.state, kC, choice), HasSubstr("fairness on d0 (not yet)"));
}

TEST(StartPlans, AnInstanceThatLeavesIsNoCandidate) {
  TestState core(2);
  core.serve(kA);
  core.run(kA);
  core.residency.drain(kDevice, kA);
  core.wait(kA);
  const StartChoice choice = choose(core, kA);
  EXPECT_EQ(choice.placement.device, kOther);
  EXPECT_THAT(describe_others(core.state, kA, choice), HasSubstr("queue on d0 (it is to leave)"));
}

TEST(StartPlans, AnEngineAndAGroupAreComparedLikeOthers) {
  TestState core(2);
  core.add_engine();
  core.add_group();
  measure(core, kEngine, 3s, 100ms);
  core.wait(kEngine);
  const StartChoice engine = choose(core, kEngine);
  EXPECT_EQ(engine.plans.best->kind, PlanKind::kSwapIn);
  EXPECT_EQ(engine.plans.best->ttft(), 3100ms);
  measure(core, kGroup, 2s, 50ms);
  core.wait(kGroup);
  const StartChoice group = choose(core, kGroup);
  EXPECT_EQ(group.plans.best->kind, PlanKind::kGroup);
  EXPECT_EQ(group.plans.best->ttft(), 2050ms);
}

TEST(StartPlans, StagesCompeteWithOneDevice) {
  // One host fetches for 8 s, four for 2.3 s.
  for (const Duration objective : {100ms, 3000ms}) {
    FourHosts core;
    core.want(objective);
    core.wait(kA);
    const StartChoice choice = choose(core, kA);
    ASSERT_TRUE(choice.stages);
    EXPECT_EQ(choice.stages->places.front().stage.model, kQuarters);
    EXPECT_EQ(choice.plans.best->kind, PlanKind::kStages);
    ASSERT_FALSE(choice.plans.others.empty());
    EXPECT_EQ(choice.plans.others.front().kind, PlanKind::kActivate);
    EXPECT_EQ(choice.plans.others.front().ttft(), 8s);
  }
  FourHosts patient;
  patient.want(10s);
  patient.wait(kA);
  const StartChoice choice = choose(patient, kA);
  EXPECT_FALSE(choice.stages);
  EXPECT_THAT(describe_others(patient.state, kA, choice), HasSubstr("stages ("));
  EXPECT_THAT(describe_others(patient.state, kA, choice), HasSubstr("no better than one device"));
}

// ---- What was predicted, and what it took ----

TEST(StartPlans, WhatAFirstTokenTookIsSaidOnceItsRequestHasEnded) {
  TestState core;
  measure(core, kA, 300ms, 20ms);
  const RequestId request = core.wait(kA);
  core.pass(100ms);
  const RequestId later = core.wait(kA);
  place(core.parts);
  ASSERT_EQ(core.decisions(DecisionKind::kLoad).size(), 1U);
  EXPECT_EQ(core.decisions(DecisionKind::kLoad)[0].first_token, 320ms);
  EXPECT_THAT(core.decisions(DecisionKind::kLoad)[0].why,
              HasSubstr("2 requests wait; free_pages, first token in 320 ms by estimate"));
  core.residency.serve(kDevice, kA);
  core.queues.send(request, kDevice, std::nullopt);
  core.queues.send(later, kDevice, std::nullopt);
  core.queues.finish({.request = later, .ttft = 300ms});
  EXPECT_THAT(core.all<PlanMeasured>(), IsEmpty()) << "the other one had waited longer";
  core.queues.finish({.request = request, .ttft = 450ms});
  const std::vector<PlanMeasured> measured = core.all<PlanMeasured>();
  ASSERT_EQ(measured.size(), 1U);
  EXPECT_EQ(measured[0].kind, PlanKind::kActivate);
  EXPECT_EQ(measured[0].device, kDevice);
  EXPECT_EQ(measured[0].predicted, 320ms);
  EXPECT_EQ(measured[0].took, 350ms) << "it had waited for 100 ms when the load was decided";
}

TEST(StartPlans, NothingIsSaidOfARequestThatRanElsewhere) {
  TestState core(2);
  const RequestId request = core.wait(kA);
  place(core.parts);
  ASSERT_EQ(core.loads().size(), 1U);
  const DeviceId other = core.loads()[0].first == kDevice ? kOther : kDevice;
  core.serve(kA, other);
  core.queues.send(request, other, std::nullopt);
  core.commands.clear();
  core.queues.finish({.request = request, .ttft = 1s});
  EXPECT_THAT(core.all<PlanMeasured>(), IsEmpty());
}

}  // namespace
}  // namespace heddle::core::manager
