#include "agent/fetch_link.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::agent {
namespace {

using policy::FetchUrgency;

constexpr FetchUrgency kEarly{.early = true};
constexpr FetchUrgency kWanted{};

TEST(FetchLink, WhatNobodyWaitsForComesWhenNothingElseDoes) {
  FetchLink link(0);
  const FetchLink::Member early = link.join(kEarly);
  link.turn(early, {});  // Alone it goes on.
  const FetchLink::Member wanted = link.join(kWanted);
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
  const FetchLink::Member early = link.join(kEarly);
  (void)link.join(kWanted);
  std::jthread waits([&] { link.turn(early, {}); });
  link.prioritise(early);
  waits.join();
}

TEST(FetchLink, WhoeverWaitsSoLongGoesWithoutATurn) {
  FetchLink link(0);
  const FetchLink::Member early = link.join(kEarly);
  EXPECT_TRUE(link.turn(early, {}, Duration{}));
  const FetchLink::Member wanted = link.join(kWanted);
  EXPECT_FALSE(link.turn(early, {}, Duration{}));
  EXPECT_FALSE(link.turn(early, {}, std::chrono::milliseconds(1)));
  link.leave(wanted);
  EXPECT_TRUE(link.turn(early, {}, Duration{}));
}

TEST(FetchLink, AStopEndsEveryWait) {
  FetchLink link(1);  // One byte a second.
  const FetchLink::Member early = link.join(kEarly);
  const FetchLink::Member wanted = link.join(kWanted);
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

}  // namespace
}  // namespace heddle::agent
