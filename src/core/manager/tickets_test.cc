#include "core/manager/tickets.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using test::kA;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kShard;
using test::TestState;

std::vector<TicketId> answered(const TestState& core) {
  std::vector<TicketId> ids;
  for (const AdminDone& done : core.all<AdminDone>()) {
    ids.push_back(done.ticket);
  }
  return ids;
}

TEST(Tickets, EveryLoadOfAModelIsAnsweredOnceItServes) {
  TestState core;
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kA});
  core.tickets.ask(AdminLoad{.ticket = TicketId(2), .model = kA});
  core.load(kA);
  core.tickets.answer();
  EXPECT_TRUE(answered(core).empty()) << "it is on its way";
  core.serve(kA);
  core.tickets.answer();
  core.tickets.answer();
  EXPECT_EQ(answered(core), (std::vector{TicketId(1), TicketId(2)}));
  EXPECT_FALSE(core.all<AdminDone>()[0].error);
}

TEST(Tickets, AnUnloadIsAnsweredWhenTheModelIsGoneFromAllDevices) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, test::kOther);
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kA});
  core.residency.forget(kDevice, kA);
  core.tickets.answer();
  EXPECT_TRUE(answered(core).empty());
  core.residency.forget(test::kOther, kA);
  core.tickets.answer();
  EXPECT_EQ(answered(core), std::vector{TicketId(1)});
  EXPECT_TRUE(core.model(kA).unloads_asked.empty());
}

TEST(Tickets, AnUnloadOfAGroupWaitsForItsLastShard) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kGroup});
  core.residency.forget(kDevice, kGroup);
  core.tickets.answer();
  EXPECT_TRUE(answered(core).empty());
  core.residency.forget(test::kOther, kShard);
  core.tickets.answer();
  EXPECT_EQ(answered(core).size(), 1U);
}

TEST(Tickets, AnEngineThatWasIdleMayStandByButNotOneThatAnOperatorUnloads) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.residency.suspend(kDevice, kEngine, 2);
  core.tickets.ask(
      AdminUnload{.ticket = TicketId(1), .model = kEngine, .why = EvictionReason::kIdle});
  core.tickets.ask(AdminUnload{.ticket = TicketId(2), .model = kEngine});
  core.tickets.answer();
  EXPECT_TRUE(answered(core).empty()) << "one of them wants it gone";
  core.model(kEngine).unloads_asked.erase(TicketId(2));
  core.tickets.answer();
  EXPECT_EQ(answered(core), std::vector{TicketId(1)});
}

TEST(Tickets, AnUnloadOfWhatIsNotThereIsAnsweredAtOnce) {
  TestState core;
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kA});
  core.tickets.answer();
  EXPECT_EQ(answered(core).size(), 1U);
}

TEST(Tickets, WhatWasUnloadedStaysAwayUntilSomebodyAsksForIt) {
  TestState core;
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kA});
  EXPECT_TRUE(core.model(kA).sent_away);
  core.tickets.welcome(kA);
  EXPECT_FALSE(core.model(kA).sent_away);
  core.tickets.ask(AdminUnload{.ticket = TicketId(2), .model = kA});
  core.tickets.ask(AdminLoad{.ticket = TicketId(3), .model = kA});
  EXPECT_FALSE(core.model(kA).sent_away);
}

TEST(Tickets, WhatWasIdleForTooLongIsNotedByTheWindowUntilSomebodyAsksForIt) {
  TestState core;
  const auto idle = [&](std::uint64_t ticket) {
    core.tickets.ask(
        AdminUnload{.ticket = TicketId(ticket), .model = kA, .why = EvictionReason::kIdle});
  };
  idle(1);
  EXPECT_FALSE(core.model(kA).sent_away);
  EXPECT_EQ(core.model(kA).idle_in, 10) << "100 s are over, and a window takes 10 s";
  core.tickets.welcome(kA);
  EXPECT_EQ(core.model(kA).idle_in, -1);
  idle(2);
  core.tickets.ask(AdminLoad{.ticket = TicketId(3), .model = kA});
  EXPECT_EQ(core.model(kA).idle_in, -1);
}

TEST(Tickets, OperatorsHearWhyAModelCannotBeHad) {
  TestState core;
  core.tickets.ask(AdminLoad{.ticket = TicketId(1), .model = kA});
  core.tickets.fail_loads(kA, {Code::kUnavailable, "why"});
  core.tickets.fail_loads(kA, {Code::kUnavailable, "why"});
  ASSERT_EQ(core.all<AdminDone>().size(), 1U);
  EXPECT_EQ(core.all<AdminDone>()[0].error->code, Code::kUnavailable);
}

}  // namespace
}  // namespace heddle::core::manager
