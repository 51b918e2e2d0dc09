#include "core/manager/outbox.h"

#include <gtest/gtest.h>

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;

/// A step at this time that wants to be woken at these; what it asks for.
struct Steps {
  std::optional<Instant> step(Instant now, const std::vector<Instant>& wanted) {
    std::vector<ManagerCommand> commands;
    state.now = now;
    out.open(commands);
    for (const Instant at : wanted) {
      out.wake_by(at);
    }
    out.close();
    return commands.empty() ? std::nullopt : std::optional(std::get<WakeAt>(commands.back()).at);
  }
  State state{};
  Outbox out{state};
};

TEST(Outbox, AsksForTheEarliestTimeThatIsNotPast) {
  Steps steps;
  EXPECT_EQ(steps.step(Instant(10s), {}), std::nullopt);
  EXPECT_EQ(steps.step(Instant(10s), {Instant(10s), Instant(3s)}), std::nullopt);
  EXPECT_EQ(steps.step(Instant(10s), {Instant(30s), Instant(20s), Instant(25s)}), Instant(20s));
}

TEST(Outbox, ATimerThatIsSetIsLeftToFireUnlessAnEarlierOneIsWanted) {
  Steps steps;
  steps.step(Instant(10s), {Instant(20s)});
  EXPECT_EQ(steps.step(Instant(11s), {Instant(20s)}), std::nullopt);
  EXPECT_EQ(steps.step(Instant(12s), {Instant(30s)}), std::nullopt) << "it fires at 20 s";
  EXPECT_EQ(steps.step(Instant(13s), {}), std::nullopt);
  EXPECT_EQ(steps.step(Instant(14s), {Instant(15s)}), Instant(15s));
  EXPECT_EQ(steps.step(Instant(15s), {Instant(30s)}), Instant(30s)) << "it has fired";
}

TEST(Outbox, CommandsAreAppendedInOrder) {
  State state{};
  Outbox out(state);
  std::vector<ManagerCommand> commands{Drained{}};
  out.open(commands);
  out.act(Hold{.request = RequestId(1)});
  out.note(DecisionKind::kDrain, ModelId(2), DeviceId(3), "why", ModelId(4));
  out.wake_by(Instant(1s));
  out.close();
  ASSERT_EQ(commands.size(), 4U);
  EXPECT_EQ(std::get<Hold>(commands[1]).request, RequestId(1));
  EXPECT_EQ(std::get<Decision>(commands[2]),
            (Decision{.kind = DecisionKind::kDrain,
                      .model = ModelId(2),
                      .device = DeviceId(3),
                      .for_model = ModelId(4),
                      .why = "why"}));
  EXPECT_TRUE(std::holds_alternative<WakeAt>(commands[3])) << "last";
}

}  // namespace
}  // namespace heddle::core::manager
