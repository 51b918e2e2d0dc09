#include "twin/gateway.h"

#include <variant>

#include <gtest/gtest.h>

#include "twin/contents.h"

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kPrompt = 10;

/// A request for answers of three tokens, which has arrived.
struct Rig {
  Agenda agenda{};
  std::vector<core::ManagerEvent> told{};
  Gateway gateway{
      agenda, FrontId(), [this](const core::ManagerEvent& event) { told.push_back(event); }};
  RequestId id{};

  explicit Rig(std::size_t choices = 1, std::int64_t tokens_max = 100, bool open_ended = false) {
    id = gateway.plan({.model = ModelId(1),
                       .input_tokens = kPrompt,
                       .output_tokens = 3,
                       .choices = choices,
                       .open_ended = open_ended});
    gateway.arrive(id, tokens_max);
  }
  [[nodiscard]] const Request& request() const { return gateway.requests().at(id.value()); }
  core::Submit submit(std::int64_t tokens = kPrompt + 3) {
    return gateway.submit({.request = id, .device = DeviceId(0), .tokens = tokens});
  }
  void take(std::uint32_t choice, std::int64_t position, bool last = false) {
    gateway.take({.request = id,
                  .choice = choice,
                  .position = position,
                  .token = right_token(kPrompt, choice, position),
                  .finish = last ? spec::FinishReason::kLength : spec::FinishReason::kNone});
  }
  void wait(Duration time) {
    agenda.after(time, [] {});
    agenda.advance();
  }
};

TEST(Gateway, TellsWhenAllAnswersHaveEnded) {
  Rig rig(2);
  rig.submit();
  rig.wait(5ms);
  for (const std::int64_t position : {0, 1, 2}) {
    rig.take(0, position, position == 2);
    rig.take(1, position, false);
    rig.wait(1ms);
  }
  EXPECT_EQ(rig.request().end, Request::End::kNone);
  rig.gateway.finish_choice(rig.id, 1);
  EXPECT_EQ(rig.request().end, Request::End::kDone);
  EXPECT_EQ(rig.gateway.ended(), 1U);
  const auto& finished = std::get<core::RequestFinished>(rig.told.back());
  EXPECT_EQ(finished.ttft, 5ms);
  EXPECT_EQ(finished.tpot, 1ms);
}

TEST(Gateway, GoesOnElsewhereWithWhatThereIs) {
  Rig rig(2);
  EXPECT_EQ(rig.submit().choices.size(), 2U);
  rig.take(0, 0);
  rig.take(1, 0);
  rig.take(1, 1);
  rig.take(1, 2, true);
  const core::Submit again = rig.submit();
  ASSERT_EQ(again.choices.size(), 1U);
  EXPECT_EQ(again.choices[0].generated, std::vector<TokenId>{right_token(kPrompt, 0, 0)});
  rig.take(0, 0);  // Both lives said it.
  EXPECT_EQ(rig.request().generated[0].size(), 1U);
}

TEST(Gateway, AnAnswerEndsWhereMemoryDoes) {
  EXPECT_EQ(Rig(1, kPrompt + 2).request().most, 2);
  Rig rig(1, 100, true);
  EXPECT_EQ(rig.submit(kPrompt + 1).choices[0].params.max_tokens, 1);
}

TEST(Gateway, WhatBreaksTheRulesIsNoticed) {
  Rig rig;
  EXPECT_DEATH(rig.submit(kPrompt + 2), "room") << "too little";
  rig.submit();
  EXPECT_DEATH(rig.take(0, 1), "position") << "the first is missing";
  EXPECT_DEATH(rig.gateway.take({.request = rig.id, .token = TokenId{1}}), "right_token");
  EXPECT_DEATH(rig.take(0, 0, true), "most") << "too early";
  rig.gateway.hold(rig.id);
  EXPECT_DEATH(rig.gateway.hold(rig.id), "held");
  rig.gateway.cancel(rig.id);
  EXPECT_TRUE(std::holds_alternative<core::RequestCancelled>(rig.told.back()));
  EXPECT_DEATH(rig.submit(), "end");
  EXPECT_DEATH(rig.gateway.fail({.request = rig.id, .error = {Code::kUnavailable, "no"}}), "end");
}

}  // namespace
}  // namespace heddle::twin
