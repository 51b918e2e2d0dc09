#include "external/sleep_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "external/health.h"
#include "external/test_engine.h"

namespace heddle::external {
namespace {

using spec::EngineKind;
using spec::SuspendLevel;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

/// An engine that is ready.
struct Ready : RunningEngine {
  explicit Ready(const std::vector<std::string>& flags = {}) : RunningEngine(flags) {
    HEDDLE_CHECK(
        run(loop, await_healthy(address, "/health", 1min, [] { return std::optional<Error>(); }))
            .has_value());
  }
  std::string calls() {
    return run(loop, http::exchange(address, {.target = "/calls", .patience = 1min}))->body;
  }
};

struct SleepCallTest : testing::Test {
  Result<void> sleep(Ready& engine, EngineKind kind, SuspendLevel level) {
    return run(engine.loop, put_to_sleep({engine.address, kind, "alpha"}, level, 1min, timer));
  }
  Result<void> wake(Ready& engine, EngineKind kind, SuspendLevel level, Duration patience = 1min) {
    return run(engine.loop, wake_up({engine.address, kind, "alpha"}, level, patience, timer));
  }
  std::vector<std::string> phases() const {
    std::vector<std::string> names;
    for (const Phase& phase : timer.phases()) {
      names.push_back(phase.name);
    }
    return names;
  }
  PhaseTimer timer{};
};

TEST_F(SleepCallTest, IsEachKindsOwn) {
  Ready engine;
  for (const EngineKind kind : {EngineKind::kVllm, EngineKind::kSglang}) {
    EXPECT_TRUE(sleep(engine, kind, SuspendLevel::kSleep).has_value());
    EXPECT_TRUE(wake(engine, kind, SuspendLevel::kSleep).has_value());
  }
  EXPECT_THAT(engine.calls(),
              HasSubstr(R"("/sleep?level=1", "/wake_up", "/release_memory_occupation", )"
                        R"("/resume_memory_occupation"])"));
  EXPECT_THAT(phases(), ElementsAre("sleep", "wake", "sleep", "wake"));
}

TEST_F(SleepCallTest, OfDeepSleepReloadsTheWeightsBeforeThereIsKv) {
  Ready engine;
  EXPECT_TRUE(sleep(engine, EngineKind::kVllm, SuspendLevel::kDeepSleep).has_value());
  EXPECT_TRUE(wake(engine, EngineKind::kVllm, SuspendLevel::kDeepSleep).has_value());
  EXPECT_THAT(engine.calls(),
              HasSubstr(R"("/sleep?level=2", "/wake_up?tags=weights", "/collective_rpc", )"
                        R"("/wake_up?tags=kv_cache", "/reset_prefix_cache"])"));
  EXPECT_THAT(phases(),
              ElementsAre("sleep", "wake weights", "reload", "wake KV", "reset prefixes"));
}

TEST_F(SleepCallTest, OfTritonUnloadsTheModelOfItsRepository) {
  Ready engine;
  EXPECT_TRUE(sleep(engine, EngineKind::kTriton, SuspendLevel::kDeepSleep).has_value());
  EXPECT_TRUE(wake(engine, EngineKind::kTriton, SuspendLevel::kDeepSleep).has_value());
  EXPECT_THAT(engine.calls(), HasSubstr(R"("/v1/models/alpha/unload", "/v1/models/alpha/load")"));
  EXPECT_THAT(phases(), ElementsAre("unload", "load"));
  Ready older({"--no-sleep"});
  EXPECT_THAT(sleep(older, EngineKind::kTriton, SuspendLevel::kDeepSleep).error().message,
              HasSubstr("--model-control-mode=explicit"));
  EXPECT_EQ(sleep(older, EngineKind::kTriton, SuspendLevel::kSleep).error().code,
            Code::kFailedPrecondition);
}

TEST_F(SleepCallTest, OfOllamaUnloadsTheModelAndWaitsUntilItIsGone) {
  Ready engine({"--sleep-after", "0.2"});
  EXPECT_TRUE(sleep(engine, EngineKind::kOllama, SuspendLevel::kDeepSleep).has_value());
  EXPECT_EQ(
      run(engine.loop, http::exchange(engine.address, {.target = "/api/ps", .patience = 1min}))
          ->body,
      R"({"models": []})");
  EXPECT_TRUE(wake(engine, EngineKind::kOllama, SuspendLevel::kDeepSleep).has_value());
  EXPECT_THAT(phases(), ElementsAre("unload", "unloaded", "load"));
  EXPECT_THAT(engine.calls(), HasSubstr(R"("/api/generate", "/api/ps")"));
}

TEST_F(SleepCallTest, StopsAtTheFirstThatFails) {
  Ready engine({"--fail-reload"});
  EXPECT_TRUE(sleep(engine, EngineKind::kVllm, SuspendLevel::kDeepSleep).has_value());
  const auto woke = wake(engine, EngineKind::kVllm, SuspendLevel::kDeepSleep);
  ASSERT_FALSE(woke.has_value());
  EXPECT_THAT(woke.error().message, HasSubstr("/collective_rpc: status 500"));
  EXPECT_THAT(engine.calls(), EndsWith(R"("/wake_up?tags=weights", "/collective_rpc"])"));
}

TEST_F(SleepCallTest, FailsWhereTheAnswerSaysThatNothingWasDone) {
  Ready engine({"--fail-reset"});
  EXPECT_TRUE(sleep(engine, EngineKind::kVllm, SuspendLevel::kDeepSleep).has_value());
  const auto woke = wake(engine, EngineKind::kVllm, SuspendLevel::kDeepSleep);
  ASSERT_FALSE(woke.has_value());
  EXPECT_THAT(woke.error().message, HasSubstr("/reset_prefix_cache: it says that it did not"));
}

TEST_F(SleepCallTest, IsRefusedForKindsWithoutOne) {
  for (const EngineKind kind :
       {EngineKind::kGeneric, EngineKind::kLlamaServer, EngineKind::kOllama}) {
    const auto calls = sleep_calls(kind, SuspendLevel::kSleep, "alpha");
    ASSERT_FALSE(calls.has_value());
    EXPECT_EQ(calls.error().code, Code::kFailedPrecondition);
    EXPECT_FALSE(wake_calls(kind, SuspendLevel::kSleep, "alpha").has_value());
  }
  EXPECT_FALSE(sleep_calls(EngineKind::kSglang, SuspendLevel::kDeepSleep, "alpha").has_value());
  EXPECT_FALSE(wake_calls(EngineKind::kSglang, SuspendLevel::kDeepSleep, "alpha").has_value());
}

TEST_F(SleepCallTest, SaysWhatAnEngineLacks) {
  Ready engine({"--no-sleep"});
  const auto slept = sleep(engine, EngineKind::kVllm, SuspendLevel::kSleep);
  ASSERT_FALSE(slept.has_value());
  EXPECT_THAT(slept.error().message, HasSubstr("--enable-sleep-mode"));
}

TEST_F(SleepCallTest, FailsWithTheStatusAndInTime) {
  Ready fails({"--fail-sleep"});
  const auto slept = sleep(fails, EngineKind::kVllm, SuspendLevel::kSleep);
  ASSERT_FALSE(slept.has_value());
  EXPECT_THAT(slept.error().message, HasSubstr("status 500"));
  Ready hangs({"--hang-wake"});
  EXPECT_TRUE(sleep(hangs, EngineKind::kVllm, SuspendLevel::kSleep).has_value());
  const auto woke = wake(hangs, EngineKind::kVllm, SuspendLevel::kSleep, 100ms);
  ASSERT_FALSE(woke.has_value());
  EXPECT_EQ(woke.error().code, Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace heddle::external
