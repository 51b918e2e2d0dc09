#include "core/manager/client_events.h"

#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/test_state.h"
#include "core/manager/worker_events.h"
#include "core/manager/worker_lives.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kGroup;
using test::kPages;
using test::kShard;
using test::kUnknown;
using test::TestState;

/// With which error a request is refused; nullopt: it is accepted. Half of its tokens are of its
/// answer.
std::optional<Error> ask(TestState& core, ModelId model, std::int64_t tokens = 8) {
  core.commands.clear();
  const RequestId id(++core.requests);
  hear(core.parts,
       RequestArrived{.request = id,
                      .model = model,
                      .prompt_tokens = tokens / 2,
                      .max_tokens = tokens - tokens / 2});
  const std::vector<FailRequest> failed = core.all<FailRequest>();
  EXPECT_EQ(failed.empty(), core.state.requests.contains(id));
  if (failed.empty()) {
    return std::nullopt;
  }
  EXPECT_EQ(failed[0].request, id);
  return failed[0].error;
}

std::optional<Code> refusal(TestState& core, ModelId model, std::int64_t tokens = 8) {
  const std::optional<Error> error = ask(core, model, tokens);
  return error ? std::optional(error->code) : std::nullopt;
}

// ---- Requests that arrive ----

TEST(ClientEvents, ARequestThatIsAcceptedWaitsAndItsModelMayBePrewarmedAgain) {
  TestState core;
  core.model(kA).sent_away = true;
  EXPECT_FALSE(refusal(core, kA));
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
  EXPECT_FALSE(core.model(kA).sent_away);
}

TEST(ClientEvents, ARequestThatIsRefusedIsNoUseOfItsModel) {
  TestState core;
  core.model(kA).sent_away = true;
  EXPECT_TRUE(refusal(core, kA, 97));
  EXPECT_TRUE(core.model(kA).sent_away);
  EXPECT_EQ(core.model(kA).demand.in_system(), 0);
}

TEST(ClientEvents, AnUnknownModelARemovedOneAndAShardCannotBeAskedFor) {
  TestState core(2);
  core.add_group();
  EXPECT_EQ(refusal(core, kUnknown), Code::kNotFound);
  EXPECT_EQ(refusal(core, kShard), Code::kNotFound);
  EXPECT_FALSE(refusal(core, kGroup));
  core.remove(kA);
  EXPECT_EQ(refusal(core, kA), Code::kNotFound);
}

TEST(ClientEvents, AServerThatShutsDownTakesNoMore) {
  TestState core;
  core.state.drain_deadline = core.state.now + 1min;
  EXPECT_EQ(refusal(core, kA), Code::kUnavailable);
}

TEST(ClientEvents, ARequestIsAcceptedIfItFitsAloneOnTheLargestDevice) {
  TestState core(2);
  EXPECT_FALSE(refusal(core, kA, 96));
  const std::optional<Error> error = ask(core, kA, 97);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::kInvalidArgument);
  EXPECT_NE(error->message.find("96"), std::string::npos) << error->message;
  EXPECT_NE(error->message.find("'a'"), std::string::npos) << error->message;
  core.resize(test::kOther, kPages + 1);
  EXPECT_FALSE(refusal(core, kA, 97));
}

TEST(ClientEvents, AModelThatNoDeviceCanHoldIsRefusedWithWhatItNeeds) {
  TestState core;
  core.resize(kDevice, 8);
  const std::optional<Error> error = ask(core, kA);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::kInvalidArgument);
  EXPECT_NE(error->message.find("'a' needs"), std::string::npos) << error->message;
}

TEST(ClientEvents, TheQueueOfAModelAndThatOfAllHaveTheirLimits) {
  TestState core;
  core.state.options.queue_per_model = 2;
  core.state.options.queue_total = 3;
  core.serve(kA);
  core.run(kA);
  EXPECT_FALSE(refusal(core, kA));
  EXPECT_EQ(refusal(core, kA), Code::kResourceExhausted) << "one that runs counts";
  EXPECT_FALSE(refusal(core, kB));
  EXPECT_EQ(refusal(core, kB), Code::kResourceExhausted);
}

TEST(ClientEvents, AModelThatCouldNotBeLoadedIsRefusedWithTheReasonForAWhile) {
  TestState core;
  core.attempts.failed(kA, {Code::kCorrupt, "bad magic"});
  const std::optional<Error> error = ask(core, kA);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::kUnavailable);
  EXPECT_NE(error->message.find("bad magic"), std::string::npos) << error->message;
  EXPECT_FALSE(refusal(core, kB));
  core.pass(core.state.options.load_cooldown);
  EXPECT_FALSE(refusal(core, kA));
}

TEST(ClientEvents, AModelThatHasBeenLoadedSinceItFailedIsNotRefused) {
  TestState core;
  core.attempts.failed(kA, {Code::kCorrupt, "bad magic"});
  core.attempts.succeeded(kA);
  EXPECT_FALSE(refusal(core, kA));
}

TEST(ClientEvents, AFailureThatIsTriedAgainRefusesNobody) {
  TestState core;
  core.attempts.failed(kA, {Code::kUnavailable, "disk"});
  EXPECT_FALSE(refusal(core, kA));
}

// ---- Requests that end ----

TEST(ClientEvents, ARequestEndsOnceHoweverOftenThatIsSaid) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  hear(core.parts, RequestFinished{.request = id});
  EXPECT_TRUE(core.at(kA).answered);
  EXPECT_EQ(core.model(kA).requests, 0U);
  hear(core.parts, RequestFinished{.request = id});
  hear(core.parts, RequestCancelled{.request = id});
  EXPECT_TRUE(core.commands.empty());
}

TEST(ClientEvents, ARequestWhoseClientIsGoneIsForgotten) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  hear(core.parts, RequestCancelled{.request = id});
  EXPECT_TRUE(core.commands.empty());
  EXPECT_FALSE(core.state.requests.contains(id));
  EXPECT_FALSE(core.at(kA).answered);
}

// ---- Operators ----

TEST(ClientEvents, ALoadForAnOperatorIsTriedAtOnceThoughItFailedBefore) {
  TestState core;
  core.attempts.failed(kA, {Code::kCorrupt, "bad magic"});
  hear(core.parts, AdminLoad{.ticket = TicketId(1), .model = kA});
  EXPECT_TRUE(core.model(kA).loads_asked.contains(TicketId(1)));
  EXPECT_EQ(core.model(kA).retry_at, core.state.now);
  EXPECT_TRUE(core.all<AdminDone>().empty()) << "it is answered when the model serves";
}

TEST(ClientEvents, ALoadOfWhatThereIsNotOrOfAServerThatShutsDownIsRefused) {
  TestState unknown;
  TestState removed;
  removed.remove(kA);
  TestState drains;
  drains.state.drain_deadline = drains.state.now + 1min;
  for (TestState* core : {&unknown, &removed, &drains}) {
    hear(core->parts, AdminLoad{.ticket = TicketId(1), .model = core == &unknown ? kUnknown : kA});
    ASSERT_EQ(core->all<AdminDone>().size(), 1U);
    ASSERT_TRUE(core->all<AdminDone>()[0].error);
    EXPECT_EQ(core->all<AdminDone>()[0].error->code, Code::kNotFound);
    EXPECT_EQ(core->all<AdminDone>()[0].ticket, TicketId(1));
  }
}

TEST(ClientEvents, AnUnloadIsAskedOfAnyModelThatIsKnown) {
  TestState core;
  core.remove(kA);
  hear(core.parts, AdminUnload{.ticket = TicketId(1), .model = kA, .why = EvictionReason::kIdle});
  EXPECT_EQ(core.model(kA).unloads_asked.at(TicketId(1)), EvictionReason::kIdle);
  EXPECT_TRUE(core.all<AdminDone>().empty());
  hear(core.parts, AdminUnload{.ticket = TicketId(2), .model = kUnknown});
  ASSERT_EQ(core.all<AdminDone>().size(), 1U);
  EXPECT_TRUE(core.all<AdminDone>()[0].error);
}

// ---- What fronts have ----

Unfinished unfinished(std::uint64_t number, ModelId model, std::optional<DeviceId> device = {}) {
  return {.request = {.request = RequestId(number),
                      .model = model,
                      .prompt_tokens = 4,
                      .max_tokens = 4},
          .age = 3s,
          .device = device,
          .epoch = WorkerEpoch(1)};
}

TEST(ClientEvents, AFrontTellsANewManagerOfRequestsThatRunAndWait) {
  TestState core;
  core.serve(kA);
  hear(core.parts,
       FrontState{.requests = {unfinished(1, kA, kDevice),
                               unfinished(2, kB),
                               unfinished(3, kUnknown),
                               unfinished(4, kB, kDevice),
                               unfinished(5, kA, DeviceId(8))}});
  const State& state = core.state;
  EXPECT_EQ(core.at(kA).in_flight, std::set{RequestId(1)});
  EXPECT_EQ(state.requests.at(RequestId(1)).arrived, state.now - 3s);
  EXPECT_EQ(core.model(kB).waiting.size(), 1U);
  EXPECT_EQ(core.failed(), std::vector{RequestId(3)}) << "there is no such model";
  EXPECT_TRUE(state.requests.at(RequestId(4)).lost) << "its worker has no such model any more";
  EXPECT_TRUE(state.requests.at(RequestId(5)).lost) << "nothing is known of its worker";
  check_invariants(state);

  const WorkerSaid returned{.device = kDevice,
                            .epoch = WorkerEpoch(1),
                            .report = RequestReturned{.request = RequestId(4)}};
  hear(core.parts, returned);
  EXPECT_EQ(core.model(kB).waiting.size(), 2U) << "which it has said meanwhile";
  hear(core.parts,
       PlaceLost{.device = DeviceId(8), .epoch = WorkerEpoch(1), .requests = {RequestId(5)}});
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
  check_invariants(state);
}

TEST(ClientEvents, WhatAFrontDoesNotNameHasEnded) {
  TestState core;
  core.serve(kA);
  const FrontId front(2);
  const std::uint64_t first = first_request(front).value();
  const RequestId of_another = core.run(kA);
  hear(core.parts,
       FrontState{.front = front,
                  .requests = {unfinished(first + 1, kA, kDevice),
                               unfinished(first + 2, kA, kDevice),
                               unfinished(first + 3, kA)}});
  EXPECT_EQ(core.at(kA).in_flight.size(), 3U);
  hear(core.parts,
       FrontState{.front = front,
                  .requests = {unfinished(first + 2, kA),
                               unfinished(first + 3, kA, kDevice),
                               unfinished(77, kA, kDevice)}});
  EXPECT_EQ(core.at(kA).in_flight, (std::set{of_another, RequestId(first + 3)}));
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
  EXPECT_FALSE(core.state.requests.contains(RequestId(77))) << "it is another front's to tell";
  check_invariants(core.state);
  hear(core.parts, FrontState{.front = front});
  EXPECT_EQ(core.state.requests.size(), 1U);
  check_invariants(core.state);
}

TEST(ClientEvents, ARequestThatIsToldOfTwiceIsOne) {
  TestState core;
  const RequestArrived arrived{.request = RequestId(9), .model = kA, .prompt_tokens = 1};
  hear(core.parts, arrived);
  hear(core.parts, arrived);
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
  EXPECT_TRUE(core.failed().empty());
}

}  // namespace
}  // namespace heddle::core::manager
