#include "core/manager/load_attempts.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kGroup;
using test::kShard;
using test::kUnknown;
using test::TestState;

const Error kAgain{Code::kUnavailable, "disk"};

TEST(LoadAttempts, AFailedLoadIsTriedAgainAfterAPauseThatGrows) {
  TestState core;
  core.state.options.load_attempts = 4;
  core.wait(kA);
  for (const Duration pause : {100ms, 200ms, 400ms}) {
    core.attempts.failed(kA, kAgain);
    EXPECT_EQ(core.model(kA).retry_at, core.state.now + pause);
    EXPECT_EQ(core.model(kA).failed_until, Instant{}) << "requests may wait";
  }
  EXPECT_TRUE(core.commands.empty());
  EXPECT_EQ(core.model(kA).failure->message, "disk");
}

TEST(LoadAttempts, TheLastAttemptFailsWhoWaitsAndTheModelCoolsDown) {
  TestState core;
  const RequestId id = core.wait(kA);
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kA});
  core.attempts.failed(kA, kAgain);
  core.attempts.failed(kA, kAgain);
  EXPECT_EQ(core.failed(), std::vector{id});
  EXPECT_EQ(core.all<FailRequest>()[0].error.code, Code::kUnavailable);
  EXPECT_EQ(core.all<AdminDone>()[0].error->code, Code::kUnavailable);
  EXPECT_EQ(core.model(kA).failed_until, core.state.now + 10s);
  EXPECT_EQ(core.model(kA).retry_at, core.state.now + 10s);
  EXPECT_EQ(core.model(kA).failures, 0) << "after that it has all its attempts again";
}

TEST(LoadAttempts, WhatTryingAgainDoesNotCureFailsAtOnce) {
  for (const Code code : {Code::kInvalidArgument, Code::kNotFound, Code::kCorrupt}) {
    TestState core;
    core.wait(kA);
    core.attempts.failed(kA, {code, "image"});
    EXPECT_EQ(core.failed().size(), 1U) << static_cast<int>(code);
  }
}

TEST(LoadAttempts, TheFailureOfAShardIsOneOfItsModel) {
  TestState core(2);
  core.add_group();
  const RequestId id = core.wait(kGroup);
  core.attempts.failed(kShard, {Code::kCorrupt, "shard"});
  EXPECT_EQ(core.failed(), std::vector{id});
  EXPECT_TRUE(core.model(kGroup).failure);
  EXPECT_FALSE(core.model(kShard).failure);
}

TEST(LoadAttempts, AModelThatIsForgottenFailsNobody) {
  TestState core;
  core.attempts.failed(kUnknown, kAgain);
  EXPECT_TRUE(core.commands.empty());
}

TEST(LoadAttempts, ASuccessForgetsFailures) {
  TestState core;
  core.attempts.failed(kA, kAgain);
  EXPECT_FALSE(core.attempts.killed(kA));
  core.attempts.succeeded(kA);
  EXPECT_FALSE(core.model(kA).failure);
  EXPECT_EQ(core.model(kA).failures, 0);
  EXPECT_EQ(core.model(kA).kills, 0);
}

TEST(LoadAttempts, EveryThirdKillCountsAsAFailureOfTheWholeModel) {
  TestState core(2);
  core.add_group();
  EXPECT_FALSE(core.attempts.killed(kGroup));
  EXPECT_FALSE(core.attempts.killed(kShard));
  EXPECT_TRUE(core.attempts.killed(kShard));
  EXPECT_FALSE(core.attempts.killed(kGroup));
}

TEST(LoadAttempts, AnOperatorEndsThePause) {
  TestState core;
  core.attempts.failed(kA, {Code::kCorrupt, "image"});
  ASSERT_GT(core.model(kA).failed_until, core.state.now);
  core.attempts.forgive(kA);
  EXPECT_EQ(core.model(kA).retry_at, core.state.now);
  EXPECT_EQ(core.model(kA).failed_until, core.state.now);
}

TEST(LoadAttempts, WhoseRequestsAreShortEnoughGoesOnWaitingAndSoDoOperators) {
  TestState core;
  core.wait(kA, 10);
  const RequestId longer = core.wait(kA, 30);
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kA});
  core.attempts.give_up(kA, kAgain, 20);
  EXPECT_EQ(core.failed(), std::vector{longer});
  EXPECT_TRUE(core.all<AdminDone>().empty());
  core.attempts.give_up(kA, kAgain);
  EXPECT_EQ(core.failed().size(), 2U);
  EXPECT_EQ(core.all<AdminDone>().size(), 1U);
}

}  // namespace
}  // namespace heddle::core::manager
