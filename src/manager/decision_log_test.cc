#include "manager/decision_log.h"

#include <string>

#include <gtest/gtest.h>

namespace heddle::manager {
namespace {

TEST(DecisionLog, KeepsTheLatestAndNoRepetitions) {
  DecisionLog log;
  for (std::size_t i = 0; i < DecisionLog::kMost + 5; ++i) {
    log.note({.kind = core::DecisionKind::kWait, .model = "m" + std::to_string(i), .why = "w"});
    log.note({.kind = core::DecisionKind::kWait, .model = "m" + std::to_string(i), .why = "w"});
  }
  const auto all = log.all();
  ASSERT_EQ(all.size(), DecisionLog::kMost);
  EXPECT_EQ(all.front().model, "m5");
  EXPECT_EQ(all.back().model, "m" + std::to_string(DecisionLog::kMost + 4));
}

TEST(DecisionLog, WhatAFirstTokenTookIsKeptWithItsLoad) {
  using namespace std::chrono_literals;
  DecisionLog log;
  const auto load = [&](const char* device, Duration predicted) {
    log.note({.kind = core::DecisionKind::kLoad,
              .model = "m",
              .device = device,
              .why = "w",
              .first_token = predicted});
  };
  load("gpu0", 310ms);
  load("gpu0", 300ms);
  load("gpu1", 310ms);
  log.measured("m", "gpu0", 310ms, 350ms);
  log.measured("m", "gpu0", 999ms, 1s);
  const auto all = log.all();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].first_token_was, 350ms);
  EXPECT_FALSE(all[1].first_token_was || all[2].first_token_was);
}

}  // namespace
}  // namespace heddle::manager
