#include "external/kv_control.h"

#include <array>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "external/test_engine.h"
#include "http/client.h"

#include <fcntl.h>
#include <sys/file.h>

namespace heddle::external {
namespace {

using testing::HasSubstr;

struct KvControlTest : testing::Test {
  KvControlTest() {
    config.elastic_kv = true;
    config.kv_least = 64;
    config.env = {{"KVCACHED_IPC_NAME", "own_name"}};
  }
  void write(std::int64_t total, std::int64_t used) const {
    const std::array<std::int64_t, 3> values{total, used, 0};
    std::ofstream file(scratch / "own_name", std::ios::binary);
    file.write(reinterpret_cast<const char*>(values.data()), sizeof(values));
  }

  Scratch scratch{};
  config::EngineConfig config{};
};

TEST_F(KvControlTest, NamesTheSegmentUnlessTheConfigurationDoes) {
  config.env.clear();
  const auto control = KvControl::of(config, "a/model", scratch.path());
  ASSERT_EQ(config.env.size(), 1U);
  EXPECT_EQ(config.env[0].first, "KVCACHED_IPC_NAME");
  EXPECT_EQ(config.env[0].second, segment_name(::getpid(), "a/model"));
  config::EngineConfig fixed;
  EXPECT_EQ(KvControl::of(fixed, "a", scratch.path()), nullptr);
  EXPECT_TRUE(fixed.env.empty());
}

TEST_F(KvControlTest, WhatAnEarlierEngineLeftIsNotTakenForThisOne) {
  write(1000, 900);
  {
    const auto control = KvControl::of(config, "a", scratch.path());
    EXPECT_FALSE(std::filesystem::exists(scratch / "own_name"));
    const Result<void> begun = control->begin();
    EXPECT_EQ(begun.error().code, Code::kFailedPrecondition);
    EXPECT_THAT(begun.error().message, HasSubstr("pip install kvcached"));
    write(1000, 0);
    EXPECT_TRUE(control->begin().has_value());
    EXPECT_EQ(control->look(Instant(1s))->limit, 64U);
  }
  EXPECT_FALSE(std::filesystem::exists(scratch / "own_name"));
}

TEST_F(KvControlTest, TellsTheLimitLaterWhereTheEngineHoldsTheLock) {
  const auto control = KvControl::of(config, "a", scratch.path());
  write(1000, 10);
  const int other = ::open((scratch / "own_name").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(other, LOCK_EX), 0);
  EXPECT_TRUE(control->begin().has_value());
  control->limit(500);
  EXPECT_EQ(control->look(Instant(1s)).error().code, Code::kUnavailable);
  EXPECT_EQ(control->look(Instant(4s)).error().code, Code::kDeadlineExceeded);
  ::close(other);
  EXPECT_EQ(control->look(Instant(5s)).value(), (KvUse{.limit = 500, .used = 10}));
}

TEST_F(KvControlTest, NudgesWithARequestOfOneToken) {
  RunningEngine engine;
  ASSERT_TRUE(comes_true([&] {
    return run(engine.loop, http::exchange(engine.address, {.target = "/health", .patience = 1min}))
        .has_value();
  }));
  engine.config.elastic_kv = true;
  const auto control = KvControl::of(engine.config, "alpha", scratch.path());
  const auto nudge = [](KvControl& kv) -> boost::asio::awaitable<Result<void>> {
    co_await kv.nudge();
    co_return Result<void>();
  };
  EXPECT_TRUE(run(engine.loop, nudge(*control)).has_value());
  const std::string last =
      run(engine.loop,
          http::exchange(engine.address, {.target = "/last_request", .patience = 1min}))
          ->body;
  EXPECT_THAT(last, HasSubstr("\"max_tokens\": 1"));
}

}  // namespace
}  // namespace heddle::external
