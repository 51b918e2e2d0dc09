#include "external/sleep_call.h"

#include <gtest/gtest.h>

#include "external/health.h"
#include "external/test_engine.h"

namespace heddle::external {
namespace {

using spec::EngineKind;

/// An engine that is ready.
struct Ready : RunningEngine {
  explicit Ready(const std::vector<std::string>& flags = {}) : RunningEngine(flags) {
    HEDDLE_CHECK(
        run(loop, await_healthy(address, "/health", 1min, [] { return std::optional<Error>(); }))
            .has_value());
  }
  std::string calls() {
    HttpCall call;
    call.target = "/calls";
    return run(loop, http_call(address, call, 1min))->body;
  }
};

TEST(SleepCall, IsEachKindsOwn) {
  Ready engine;
  EXPECT_TRUE(run(engine.loop, put_to_sleep(engine.address, EngineKind::kVllm, 1min)).has_value());
  EXPECT_TRUE(run(engine.loop, wake_up(engine.address, EngineKind::kVllm, 1min)).has_value());
  EXPECT_TRUE(
      run(engine.loop, put_to_sleep(engine.address, EngineKind::kSglang, 1min)).has_value());
  EXPECT_TRUE(run(engine.loop, wake_up(engine.address, EngineKind::kSglang, 1min)).has_value());
  const std::string calls = engine.calls();
  EXPECT_NE(calls.find(R"("/sleep?level=1", "/wake_up", "/release_memory_occupation", )"
                       R"("/resume_memory_occupation"])"),
            std::string::npos)
      << calls;
}

TEST(SleepCall, IsRefusedForKindsWithoutOne) {
  boost::asio::io_context loop(1);
  for (const EngineKind kind :
       {EngineKind::kGeneric, EngineKind::kLlamaServer, EngineKind::kOllama}) {
    const auto slept = run(loop, put_to_sleep({}, kind, 1min));
    ASSERT_FALSE(slept.has_value());
    EXPECT_EQ(slept.error().code, Code::kFailedPrecondition);
    EXPECT_FALSE(wake_call(kind).has_value());
  }
}

TEST(SleepCall, SaysWhatAnEngineLacks) {
  Ready engine({"--no-sleep"});
  const auto slept = run(engine.loop, put_to_sleep(engine.address, EngineKind::kVllm, 1min));
  ASSERT_FALSE(slept.has_value());
  EXPECT_NE(slept.error().message.find("--enable-sleep-mode"), std::string::npos)
      << slept.error().message;
}

TEST(SleepCall, FailsWithTheStatusAndInTime) {
  Ready fails({"--fail-sleep"});
  const auto slept = run(fails.loop, put_to_sleep(fails.address, EngineKind::kVllm, 1min));
  ASSERT_FALSE(slept.has_value());
  EXPECT_NE(slept.error().message.find("status 500"), std::string::npos);
  Ready hangs({"--hang-wake"});
  EXPECT_TRUE(run(hangs.loop, put_to_sleep(hangs.address, EngineKind::kVllm, 1min)).has_value());
  const auto woke = run(hangs.loop, wake_up(hangs.address, EngineKind::kVllm, 100ms));
  ASSERT_FALSE(woke.has_value());
  EXPECT_EQ(woke.error().code, Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace heddle::external
