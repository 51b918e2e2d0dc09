#include "gateway/grammar_trials.h"

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Answers by the grammar's text: "bad" is refused, "busy" could not be tried. Each trial waits
/// until the gate is open.
class FakeTrier final : public sandbox::Trier {
 public:
  Result<void> try_grammar(const sandbox::GrammarTrial& trial) override {
    opened.wait();
    tried.push_back(trial.grammar.text);
    if (trial.grammar.text == "bad") {
      return Error{Code::kInvalidArgument, "it is bad"};
    }
    return trial.grammar.text == "busy" ? Error{Code::kUnavailable, "it was busy"} : Result<void>();
  }
  void stop() override {}
  void open() { gate.set_value(); }

  std::promise<void> gate{};
  std::shared_future<void> opened = gate.get_future().share();
  std::vector<std::string> tried{};  ///< In order; to be read once the loop has run dry.
};

class GrammarTrialsTest : public testing::Test {
 protected:
  /// Begins a check; its outcome is in `ended` once the loop has run.
  void check(const std::string& client, const std::string& text) {
    spawn(loop, wait(client, {.directory = "m", .vocab = 9, .grammar = {.text = text}}));
  }
  /// Runs the loop until nobody waits.
  void run() {
    loop.restart();
    loop.run();
  }
  Task<void> wait(std::string client, sandbox::GrammarTrial trial) {
    const std::string text = trial.grammar.text;
    const Result<void> result = co_await trials.check(client, std::move(trial));
    ended.emplace_back(client + ":" + text, result ? "" : result.error().message);
  }

  boost::asio::io_context loop{};
  std::shared_ptr<FakeTrier> trier = std::make_shared<FakeTrier>();
  GrammarTrials trials{loop, trier, {1, 2}, {.kept = 3, .waiting_per_client = 2, .waiting = 5}};
  std::vector<std::pair<std::string, std::string>> ended{};
};

TEST_F(GrammarTrialsTest, EqualOnesAreTriedOnceAndRemembered) {
  for (const char* text : {"good", "good", "bad"}) {
    check("a", text);
  }
  trier->open();
  run();
  check("b", "good");
  check("b", "bad");
  run();
  EXPECT_THAT(trier->tried, ElementsAre("good", "bad"));
  ASSERT_EQ(ended.size(), 5U);
  EXPECT_EQ(ended[3], std::pair(std::string("b:good"), std::string()));
  EXPECT_EQ(ended[4], std::pair(std::string("b:bad"), std::string("it is bad")));
}

TEST_F(GrammarTrialsTest, WhatCouldNotBeTriedIsTriedAgain) {
  trier->open();
  check("a", "busy");
  run();
  check("a", "busy");
  run();
  EXPECT_THAT(trier->tried, ElementsAre("busy", "busy"));
}

TEST_F(GrammarTrialsTest, OnlyTheLastOutcomesAreKept) {
  trier->open();
  for (const char* text : {"1", "2", "3", "1", "4", "1", "2"}) {
    check("a", text);
    run();
  }
  EXPECT_THAT(trier->tried, ElementsAre("1", "2", "3", "4", "2"));
}

TEST_F(GrammarTrialsTest, ClientsTakeTurnsAndHaveOnlySoManyWaiting) {
  for (const char* text : {"1", "2", "3"}) {
    check("a", text);
  }
  check("b", "4");
  check("c", "5");
  check("d", "6");
  check("d", "7");
  loop.restart();
  loop.poll();  // All have asked, and the first is being tried.
  ASSERT_EQ(ended.size(), 2U);
  EXPECT_EQ(ended[0].first, "a:3");
  EXPECT_THAT(ended[0].second, HasSubstr("you have 2 other grammars"));
  EXPECT_EQ(ended[1].first, "d:7");
  EXPECT_THAT(ended[1].second, HasSubstr("5 grammars wait"));
  trier->open();
  run();
  EXPECT_THAT(trier->tried, ElementsAre("1", "2", "4", "5", "6"));
  check("a", "3");
  run();
  EXPECT_EQ(ended.back().second, "") << "there is room again";
}

}  // namespace
}  // namespace heddle::gateway
