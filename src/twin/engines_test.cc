#include "twin/engines.h"

#include <gtest/gtest.h>

namespace heddle::twin {
namespace {

using namespace std::chrono_literals;
using spec::SuspendLevel;

constexpr ModelId kEngine{1};
constexpr DeviceId kDevice{0};
constexpr Life kPlace{.device = kDevice, .epoch = WorkerEpoch(1)};

/// It starts in 5 s, freezes in 10 ms and comes back in 20, sleeps in 100 ms and comes back in 300.
/// An answer begins after 50 ms and 1 ms a token of its prompt, and goes on every 10 ms.
TwinEngine engine_of(std::vector<SuspendLevel> levels) {
  levels.push_back(SuspendLevel::kStop);
  return {.hosted = {.model = kEngine, .device = kDevice, .pages = 10, .levels = std::move(levels)},
          .start = 5s,
          .stop = 1s,
          .held_pages = 9,
          .suspensions = {{SuspendLevel::kFreeze, {.out = 10ms, .in = 20ms, .held_pages = 9}},
                          {SuspendLevel::kSleep,
                           {.out = 100ms, .in = 300ms, .held_pages = 2, .host_pages = 4}}},
          .first_token = 50ms,
          .prompt_token = 1ms,
          .token = 10ms};
}

/// One engine on a device of its own.
struct OneEngine {
  explicit OneEngine(const TwinEngine& engine)
      : engines({.engines = {engine},
                 .engine_devices = {{.id = kDevice, .pages = 12}},
                 .snapshot_pages = 8},
                agenda,
                true,
                {.on_loan = [](const core::AgentEvent&) { FAIL() << "nobody lends it anything"; },
                 .on_said = [this](const core::ManagerEvent& event) { hear(event); },
                 .on_tokens =
                     [this](Life, const std::vector<core::TokenEvent>& all) {
                       for (const core::TokenEvent& token : all) {
                         tokens.emplace_back(agenda.now(), token);
                       }
                     }}) {
    engines.begin();
  }
  void hear(const core::ManagerEvent& event) {
    if (const auto* said = std::get_if<core::EngineSaid>(&event)) {
      news.emplace_back(agenda.now(), *said);
    } else if (std::holds_alternative<core::RequestUnanswered>(event)) {
      ++unanswered;
    } else if (const auto* of_worker = std::get_if<core::WorkerSaid>(&event)) {
      failed += std::holds_alternative<core::RequestFailed>(of_worker->report) ? 1 : 0;
    }
  }
  void until(Instant then) {
    bool over = false;
    agenda.at(then, [&over] { over = true; });
    while (!over) {
      ASSERT_TRUE(agenda.advance());
    }
  }
  void load() { engines.hear(core::LoadOn{.device = kDevice, .model = kEngine}); }
  void evict(std::int64_t free_pages) {
    engines.hear(core::EvictFrom{.device = kDevice, .model = kEngine, .free_pages = free_pages});
  }
  void submit(std::uint64_t id, std::int64_t prompt, std::int64_t answer) {
    core::Submit request{.request = RequestId(id),
                         .model = kEngine,
                         .prompt = std::vector<TokenId>(static_cast<std::size_t>(prompt)),
                         .choices = std::vector<core::SubmitChoice>(1)};
    request.choices[0].params.max_tokens = answer;
    EXPECT_TRUE(engines.take(kPlace, request));
  }
  [[nodiscard]] core::EngineStatus status() const { return engines.status().at(0); }

  Agenda agenda{};
  std::vector<std::pair<Instant, core::EngineSaid>> news{};
  std::vector<std::pair<Instant, core::TokenEvent>> tokens{};
  int unanswered = 0;
  int failed = 0;
  Engines engines;
};

TEST(TwinEngines, AnEngineStartsAndAnswersInItsTime) {
  OneEngine one(engine_of({SuspendLevel::kFreeze}));
  one.submit(1, 20, 3);
  EXPECT_EQ(one.unanswered, 1) << "it does not run yet";
  one.load();
  one.until(Instant(6s));
  ASSERT_EQ(one.news.size(), 1U);
  EXPECT_EQ(one.news[0].first, Instant(5s));
  EXPECT_EQ(one.news[0].second.news, core::EngineNews::kServing);
  EXPECT_EQ(one.status().held_pages, 9);
  one.submit(2, 20, 3);
  one.until(Instant(7s));
  ASSERT_EQ(one.tokens.size(), 3U);
  EXPECT_EQ(one.tokens[0].first, Instant(6s + 70ms));
  EXPECT_EQ(one.tokens[2].first, Instant(6s + 90ms));
  EXPECT_EQ(one.tokens[1].second.finish, spec::FinishReason::kNone);
  EXPECT_EQ(one.tokens[2].second.finish, spec::FinishReason::kLength);
  EXPECT_EQ(one.tokens[2].second.token, right_token(20, 0, 2));
}

TEST(TwinEngines, WhatAFrozenEngineAnswersGoesOnAfterwards) {
  OneEngine one(engine_of({SuspendLevel::kFreeze}));
  one.load();
  one.until(Instant(6s));
  one.submit(1, 20, 3);
  one.until(Instant(6s + 75ms));
  one.evict(0);
  one.until(Instant(8s));
  EXPECT_EQ(one.tokens.size(), 1U);
  EXPECT_EQ(one.status().state, core::EngineState::kSuspended);
  EXPECT_EQ(one.status().level, SuspendLevel::kFreeze);
  one.load();
  one.until(Instant(9s));
  ASSERT_EQ(one.tokens.size(), 3U);
  EXPECT_EQ(one.tokens[1].first, Instant(8s + 20ms + 5ms)) << "5 ms were left";
  EXPECT_EQ(one.failed + one.unanswered, 0);
}

TEST(TwinEngines, OneThatSleepsFreesWhatItIsSaidToAndLosesWhatItAnswers) {
  OneEngine one(engine_of({SuspendLevel::kFreeze, SuspendLevel::kSleep}));
  one.load();
  one.until(Instant(6s));
  one.submit(1, 20, 30);
  one.until(Instant(6s + 75ms));
  one.submit(2, 20, 30);
  one.evict(5);
  EXPECT_EQ(one.failed, 1) << "the first had a token";
  EXPECT_EQ(one.unanswered, 1);
  one.until(Instant(7s));
  EXPECT_EQ(one.status().level, SuspendLevel::kSleep);
  EXPECT_EQ(one.status().reserved_pages, 2);
  EXPECT_EQ(one.status().host_pages, 4);
  one.load();
  one.until(Instant(8s));
  EXPECT_EQ(one.news.back().first, Instant(7s + 300ms));
  EXPECT_EQ(one.status().reserved_pages, 10);
  EXPECT_EQ(one.tokens.size(), 1U);
}

TEST(TwinEngines, OneThatIsEndedBeforeItHasStartedNeverServes) {
  OneEngine one(engine_of({}));
  one.load();
  one.until(Instant(2s));
  one.evict(10);
  one.until(Instant(9s));
  ASSERT_EQ(one.news.size(), 1U);
  EXPECT_EQ(one.news[0].second.news, core::EngineNews::kEnded);
  EXPECT_EQ(one.news[0].first, Instant(3s));
  EXPECT_EQ(one.status().state, core::EngineState::kStopped);
}

TEST(TwinEngines, ACancelledRequestGetsNothingMore) {
  OneEngine one(engine_of({}));
  one.load();
  one.until(Instant(6s));
  one.submit(1, 0, 30);
  one.until(Instant(6s + 55ms));
  EXPECT_TRUE(one.engines.take(kPlace, core::CancelRequest{.request = RequestId(1)}));
  EXPECT_FALSE(one.engines.take(kPlace, core::CancelRequest{.request = RequestId(2)}));
  one.until(Instant(7s));
  EXPECT_EQ(one.tokens.size(), 1U);
}

}  // namespace
}  // namespace heddle::twin
