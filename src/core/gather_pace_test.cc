#include "core/gather_pace.h"

#include <algorithm>
#include <chrono>

#include <gtest/gtest.h>

namespace heddle::core {
namespace {

using namespace std::chrono_literals;

constexpr policy::SequenceId kFirst{1};
constexpr policy::SequenceId kSecond{2};
constexpr std::int64_t kTokens = 16;

/// What is awaited after so much was asked for one after the other, over a link that takes so long
/// for a token, and so long for nothing.
Duration last_wait(GatherPace& pace, Duration per_token, Duration empty) {
  Instant now{100s};
  std::int64_t there = 0;
  Duration took{};
  for (int round = 0; round < 40; ++round) {
    const std::int64_t end = there + pace.tokens();
    pace.asked(kFirst, end, now);
    took = empty + pace.tokens() * per_token;
    now += took;
    there = end;
    pace.came(kFirst, there, kTokens, now);
  }
  return took;
}

TEST(GatherPace, AFastLinkIsFilled) {
  GatherPace pace;
  EXPECT_EQ(pace.tokens(), 1) << "the first tells what nearly nothing takes";
  (void)last_wait(pace, 1us, 10ms);
  EXPECT_GE(pace.tokens(), 8192);
}

TEST(GatherPace, OverASlowLinkNothingWaitsLongBehindIt) {
  GatherPace pace;
  const Duration took = last_wait(pace, 1ms, 30ms);
  EXPECT_LE(took, 30ms + 64 * 1ms);
  EXPECT_GE(pace.tokens(), kTokens);
  EXPECT_LE(pace.tokens(), 64);
}

TEST(GatherPace, ABlockIsTheLeast) {
  GatherPace pace;
  (void)last_wait(pace, 50ms, 1ms);
  EXPECT_EQ(pace.tokens(), kTokens);
}

TEST(GatherPace, WhatWasForNobodyTellsNothing) {
  GatherPace pace;
  pace.asked(kFirst, 10, Instant{1s});
  pace.came(kSecond, 20, kTokens, Instant{2s});
  pace.came(kFirst, 9, kTokens, Instant{2s});
  EXPECT_EQ(pace.tokens(), kTokens) << "nothing that was timed has come";
  pace.forget();
  pace.came(kFirst, 10, kTokens, Instant{3s});
  EXPECT_EQ(pace.tokens(), kTokens);
  pace.asked(kFirst, 20, Instant{3s});
  pace.came(kFirst, 20, kTokens, Instant{3s});
  EXPECT_EQ(pace.tokens(), 2 * kTokens);
}

}  // namespace
}  // namespace heddle::core
