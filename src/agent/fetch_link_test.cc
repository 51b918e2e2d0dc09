#include "agent/fetch_link.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::agent {
namespace {

using namespace std::chrono_literals;

constexpr Instant kBegan{1s};

TEST(FetchLink, WhatNobodyWaitsForComesWhenNothingElseDoes) {
  FetchLink link(0);
  const FetchLink::Member early = link.join(true, kBegan);
  link.turn(early, {});  // Alone it goes on.
  const FetchLink::Member wanted = link.join(false, kBegan);
  std::atomic<bool> had_turn = false;
  std::jthread waits([&] {
    link.turn(early, {});
    had_turn = true;
  });
  link.turn(wanted, {});
  EXPECT_FALSE(had_turn);
  link.leave(wanted);
  waits.join();
  EXPECT_TRUE(had_turn);
}

TEST(FetchLink, WhatSomebodyWaitsForByNowWaitsForNobody) {
  FetchLink link(0);
  const FetchLink::Member early = link.join(true, kBegan);
  (void)link.join(false, kBegan);
  std::jthread waits([&] { link.turn(early, {}); });
  link.hasten(early, kBegan);
  waits.join();
}

TEST(FetchLink, AStopEndsEveryWait) {
  FetchLink link(1);  // One byte a second.
  const FetchLink::Member early = link.join(true, kBegan);
  const FetchLink::Member wanted = link.join(false, kBegan);
  std::stop_source stop;
  std::vector<std::jthread> threads;
  threads.emplace_back([&] { link.turn(early, stop.get_token()); });
  threads.emplace_back([&] {
    for (int i = 0; i < 10; ++i) {
      link.took(wanted, 1000, stop.get_token());
    }
  });
  stop.request_stop();
}

TEST(FetchLink, TheLinkIsNoFasterThanItIs) {
  FetchLink link(10'000'000);
  const FetchLink::Member member = link.join(false, kBegan);
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    link.took(member, 100'000, {});
  }
  // Ten milliseconds each, but for what nobody used before, and the last, which the next pays for.
  EXPECT_GE(std::chrono::steady_clock::now() - began, 90ms - 1ms);
}

}  // namespace
}  // namespace heddle::agent
