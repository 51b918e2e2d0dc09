#include "agent/kv_exchange.h"

#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::agent {
namespace {

constexpr DeviceId kHere{1};
constexpr DeviceId kDead{2};
constexpr DeviceId kFar{1U << 16U};

struct Exchange : ::testing::Test {
  rpc::KvAsk wanted(DeviceId device, std::uint64_t number) {
    rpc::KvAsk ask{.ask = number, .from = {.device = device}, .begin = 16, .end = 32};
    ask.from.host.name = device == kFar ? "h2" : "";
    return ask;
  }
  void ask(DeviceId device, std::uint64_t number, bool here = false) {
    exchange.ask(wanted(device, number), here, [this](rpc::KvGiven given) {
      answers.push_back(std::move(given));
    });
  }

  std::vector<rpc::KvAsk> told{};
  std::vector<std::pair<rpc::KvAsk, KvAnswer>> far{};
  std::vector<rpc::KvGiven> answers{};
  KvExchange exchange{
      {.tell =
           [this](DeviceId device, const rpc::KvAsk& ask) {
             if (device == kHere) {
               told.push_back(ask);
             }
             return device == kHere;
           },
       .ask_host = [this](const rpc::KvAsk& ask,
                          KvAnswer answer) { far.emplace_back(ask, std::move(answer)); }}};
};

TEST_F(Exchange, AnAnswerHasTheNumberOfWhoeverAsked) {
  ask(kHere, 7);
  ask(kHere, 7);  // Another worker's.
  ASSERT_EQ(told.size(), 2U);
  ASSERT_NE(told[0].ask, told[1].ask);
  exchange.given(kHere, {.ask = told[1].ask, .begin = 16, .end = 20});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].ask, 7U);
  EXPECT_EQ(answers[0].end, 20);
  exchange.given(kHere, {.ask = told[1].ask});
  EXPECT_EQ(answers.size(), 1U) << "it was answered";
}

TEST_F(Exchange, WhoCannotBeAskedGivesNothing) {
  ask(kDead, 3);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].ask, 3U);
  EXPECT_EQ(answers[0].begin, answers[0].end);
}

TEST_F(Exchange, AWorkerThatEndsGivesNothingMore) {
  ask(kHere, 1);
  ask(kHere, 2);
  exchange.ended(kDead);
  EXPECT_TRUE(answers.empty());
  exchange.ended(kHere);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_TRUE(answers[0].bytes.empty());
  exchange.given(kHere, {.ask = told[0].ask, .end = 9});
  EXPECT_EQ(answers.size(), 2U);
}

TEST_F(Exchange, AnotherDevicesWorkerCannotAnswer) {
  ask(kHere, 1);
  exchange.given(kDead, {.ask = told[0].ask, .end = 9});
  EXPECT_TRUE(answers.empty());
}

TEST_F(Exchange, OtherHostsAreAskedAndDoNotAskOn) {
  ask(kFar, 5);
  ASSERT_EQ(far.size(), 1U);
  far[0].second({.ask = 99, .begin = 16, .end = 24});
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].ask, 5U);
  EXPECT_EQ(answers[0].end, 24);
  ask(kFar, 6, true);
  EXPECT_EQ(far.size(), 1U);
  EXPECT_EQ(answers.size(), 2U) << "with nothing";
}

}  // namespace
}  // namespace heddle::agent
