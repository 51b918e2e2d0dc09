#include "core/manager/request_queues.h"

#include <gtest/gtest.h>

#include "core/background.h"
#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kOther;
using test::TestState;

const Error kWhy{Code::kUnavailable, "why"};

std::vector<RequestId> queue(const TestState& core, ModelId model) {
  std::vector<RequestId> ids;
  for (const auto& [key, id] : core.state.models.at(model).waiting) {
    ids.push_back(id);
  }
  return ids;
}

TEST(RequestQueues, AnOpenEndedRequestNeedsOnlyAnAnswerOfUse) {
  TestState core;
  core.queues.arrive({.request = RequestId(1),
                      .model = kA,
                      .prompt_tokens = 10,
                      .max_tokens = 900,
                      .open_ended = true});
  core.queues.arrive(
      {.request = RequestId(2), .model = kA, .prompt_tokens = 10, .max_tokens = 900});
  core.queues.arrive({.request = RequestId(3), .model = kA});
  EXPECT_EQ(core.state.requests.at(RequestId(1)).tokens, 910);
  EXPECT_EQ(core.state.requests.at(RequestId(1)).need, 10 + policy::kUsefulTokens);
  EXPECT_EQ(core.state.requests.at(RequestId(2)).need, 910);
  EXPECT_EQ(core.state.requests.at(RequestId(3)).need, 1) << "nothing is known of it";
}

TEST(RequestQueues, TheFirstTokenIsDueByTheObjectiveThatHeldAtArrival) {
  TestState core;
  core.model(kA).config.slo = {.ttft = 700ms};
  const RequestId id = core.wait(kA);
  core.model(kA).config.slo = {.ttft = 100ms};
  EXPECT_EQ(core.state.requests.at(id).due, core.state.now + 700ms);
}

TEST(RequestQueues, RequestsInTheBackgroundAreNoLoad) {
  TestState core;
  const RequestId line = core.wait(kA, 8, kBackgroundPriority);
  EXPECT_EQ(core.model(kA).requests, 1U);
  EXPECT_EQ(core.model(kA).demand.in_system(), 0);
  EXPECT_EQ(core.model(kA).starts.at(static_cast<std::size_t>(StartKind::kMiss)), 0U);
  EXPECT_EQ(core.state.requests.at(line).due, core.state.now + kBackgroundTtft);
  const RequestId client = core.wait(kA);
  EXPECT_EQ(queue(core, kA), (std::vector<RequestId>{client, line}));
  EXPECT_EQ(core.model(kA).demand.in_system(), 1);
  core.queues.cancel(line);
  EXPECT_EQ(core.model(kA).demand.in_system(), 1);
  core.queues.cancel(client);
  EXPECT_EQ(core.model(kA).demand.in_system(), 0);
}

TEST(RequestQueues, TheStartOfAModelIsCountedWithTheFirstOfItsRequests) {
  TestState core;
  core.wait(kA);
  core.wait(kA);
  EXPECT_EQ(core.model(kA).starts.at(static_cast<std::size_t>(StartKind::kMiss)), 1U);
  EXPECT_EQ(core.model(kA).requests, 2U);
  EXPECT_EQ(core.model(kA).demand.in_system(), 2);
}

TEST(RequestQueues, ARequestArrivesOnce) {
  TestState core;
  core.queues.arrive({.request = RequestId(1), .model = kA});
  EXPECT_DEATH(core.queues.arrive({.request = RequestId(1), .model = kA}), "contains");
}

TEST(RequestQueues, PriorityGoesBeforeArrival) {
  TestState core;
  const RequestId first = core.wait(kA);
  const RequestId second = core.wait(kA);
  const RequestId urgent = core.wait(kA, 8, -1);
  EXPECT_EQ(queue(core, kA), (std::vector{urgent, first, second}));
}

TEST(RequestQueues, ARequestThatWaitsAgainHasThePlaceThatItsAgeGivesIt) {
  TestState core;
  core.serve(kA);
  const RequestId first = core.run(kA);
  const RequestId second = core.wait(kA);
  core.queues.requeue(first);
  EXPECT_EQ(queue(core, kA), (std::vector{first, second}));
  EXPECT_TRUE(core.at(kA).in_flight.empty());
  EXPECT_EQ(core.model(kA).requests, 2U);
  core.queues.requeue(second);  // Though it waits.
  EXPECT_EQ(queue(core, kA), (std::vector{first, second}));
}

TEST(RequestQueues, TheRoomWhereARequestRunsFirstBoundsItsAnswerForGood) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.wait(kA, 200);
  core.queues.send(id, kDevice, 96);
  ASSERT_EQ(core.all<Dispatch>().size(), 1U);
  EXPECT_EQ(core.all<Dispatch>()[0].tokens, 96);
  EXPECT_EQ(core.all<Dispatch>()[0].epoch, WorkerEpoch(1));
  core.queues.requeue(id);
  core.queues.send(id, kDevice, 500);
  EXPECT_EQ(core.all<Dispatch>()[1].tokens, 96) << "no longer than it would have become there";
  EXPECT_EQ(core.state.requests.at(id).need, 96);
}

TEST(RequestQueues, AnEngineSaysItselfHowLongAnAnswerMayBe) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.queues.send(core.wait(kEngine, 200), kDevice, std::nullopt);
  EXPECT_EQ(core.all<Dispatch>()[0].tokens, 200);
  EXPECT_TRUE(core.at(kEngine).used);
}

TEST(RequestQueues, AWaitIsSaidOnce) {
  TestState core;
  const RequestId id = core.wait(kA);
  core.queues.hold(id);
  core.queues.hold(id);
  EXPECT_EQ(core.all<Hold>().size(), 1U);
}

// Only an answer that had a warm model and its device to itself says how fast the model is.
TEST(RequestQueues, OnlyUndisturbedAnswersAreMeasured) {
  const auto objectives = [](TestState& core, RequestId id) {
    core.queues.finish({.request = id, .ttft = 40ms, .tpot = 5ms});
    return core.model(kA).objectives();
  };
  TestState cold;
  cold.serve(kA);
  EXPECT_EQ(objectives(cold, cold.run(kA)), policy::kUnmeasured) << "nothing had been answered";
  EXPECT_EQ(objectives(cold, cold.run(kA)).ttft, 5 * 40ms);

  TestState late;
  late.serve(kA).answered = true;
  const RequestId waited = late.wait(kA);
  late.pass(1s);
  late.queues.send(waited, kDevice, std::nullopt);
  EXPECT_EQ(objectives(late, waited), policy::kUnmeasured) << "it waited";

  TestState crowded;
  crowded.serve(kA).answered = true;
  crowded.serve(kB).answered = true;
  const RequestId first = crowded.run(kA);
  crowded.run(kB);
  EXPECT_EQ(objectives(crowded, first), policy::kUnmeasured) << "another came";
  EXPECT_EQ(objectives(crowded, crowded.run(kA)), policy::kUnmeasured) << "another was there";

  TestState loaded;
  loaded.serve(kA).answered = true;
  const RequestId beside = loaded.run(kA);
  loaded.queues.disturb(kDevice);
  EXPECT_EQ(objectives(loaded, beside), policy::kUnmeasured) << "a model was loaded beside it";
}

TEST(RequestQueues, AnEndedRequestLeavesNothingBehind) {
  TestState core;
  core.serve(kA);
  core.queues.arrive({.request = RequestId(8), .model = kA, .patience = 5s});
  core.queues.send(RequestId(8), kDevice, std::nullopt);
  core.queues.keep_alone(kDevice, RequestId(8));
  core.pass(2s);
  core.finish(RequestId(8));
  EXPECT_TRUE(core.state.requests.empty());
  EXPECT_TRUE(core.state.deadlines.empty());
  EXPECT_FALSE(core.device().alone);
  EXPECT_TRUE(core.at(kA).in_flight.empty());
  EXPECT_TRUE(core.at(kA).answered);
  EXPECT_EQ(core.model(kA).requests, 0U);
  EXPECT_EQ(core.model(kA).last_used, core.state.now);
}

TEST(RequestQueues, AWorkerHearsOfACancelledRequestAndAnEngineDoesNot) {
  TestState core;
  core.add_engine();
  core.serve(kA);
  core.serve(kEngine);
  const RequestId at_worker = core.run(kA);
  const RequestId at_engine = core.run(kEngine);
  const RequestId waits = core.wait(kA);
  core.queues.cancel(at_engine);
  core.queues.cancel(waits);
  core.queues.cancel(at_worker);
  EXPECT_TRUE(core.commands.empty()) << "whoever runs it hears that from its front";
  EXPECT_TRUE(core.at(kA).in_flight.empty());
  EXPECT_TRUE(core.state.requests.empty());
}

TEST(RequestQueues, AFailureIsSaidOnce) {
  TestState core;
  core.serve(kA);
  core.queues.fail(core.run(kA), kWhy);
  ASSERT_EQ(core.all<FailRequest>().size(), 1U);
  EXPECT_EQ(core.all<FailRequest>()[0].error.code, kWhy.code);
  EXPECT_TRUE(core.state.requests.empty());
}

TEST(RequestQueues, OfThoseThatWaitOnlyWhoNeedsMoreFails) {
  TestState core;
  core.serve(kA);
  const RequestId runs = core.run(kA);
  core.wait(kA, 20);
  const RequestId longer = core.wait(kA, 21);
  core.queues.fail_waiting(kA, kWhy, 20);
  EXPECT_EQ(core.failed(), std::vector{longer});
  core.queues.fail_waiting(kA, kWhy, 0);
  EXPECT_EQ(core.failed().size(), 2U);
  EXPECT_TRUE(core.state.requests.contains(runs));
}

TEST(RequestQueues, DeathsCountUntilTheRequestComesFurther) {
  TestState core;
  const RequestId id = core.wait(kA);
  EXPECT_EQ(core.queues.died(id), 1);
  EXPECT_EQ(core.queues.died(id), 2);
  core.queues.absolve(id);
  EXPECT_EQ(core.queues.died(id), 1);
}

TEST(RequestQueues, ADeviceKeptForARequestIsFreeWhenThatLeaves) {
  TestState core(2);
  const RequestId id = core.wait(kA);
  const RequestId other = core.wait(kA);
  core.queues.keep_alone(kDevice, id);
  core.queues.keep_alone(kOther, other);
  core.queues.cancel(id);
  EXPECT_FALSE(core.device().alone);
  EXPECT_EQ(core.device(kOther).alone, other);
  core.queues.release(kOther);
  EXPECT_FALSE(core.device(kOther).alone);
}

TEST(RequestQueues, WhatWasRecalledIsCountedAndWaits) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  core.queues.recalled(id);
  EXPECT_EQ(core.model(kA).recalled, 1U);
  EXPECT_EQ(queue(core, kA), std::vector{id});
}

TEST(RequestQueues, TellsWhenTheReasonToWaitHasChanged) {
  TestState core;
  EXPECT_FALSE(core.queues.waits_for(kA, std::nullopt));
  EXPECT_TRUE(core.queues.waits_for(kA, policy::PlacementReason::kFairness));
  EXPECT_FALSE(core.queues.waits_for(kA, policy::PlacementReason::kFairness));
  EXPECT_TRUE(core.queues.waits_for(kA, policy::PlacementReason::kResidence));
  EXPECT_TRUE(core.queues.waits_for(kA, std::nullopt));
}

TEST(RequestQueues, AnEngineRestsUntilThen) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.queues.rest(kDevice, kEngine, core.state.now + 1s);
  EXPECT_EQ(core.at(kEngine).resting_until, core.state.now + 1s);
}

}  // namespace
}  // namespace heddle::core::manager
