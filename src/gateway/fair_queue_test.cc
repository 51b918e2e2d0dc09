#include "gateway/fair_queue.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

std::string drain(FairQueue<std::string>& queue) {
  std::string all;
  while (const std::optional<std::string> one = queue.pop()) {
    all += *one + " ";
  }
  return all;
}

TEST(FairQueue, ClientsTakeTurns) {
  FairQueue<std::string> queue;
  for (const char* one : {"a1", "a2", "a3", "a4", "b1", "c1", "c2"}) {
    queue.push_back(std::string(1, one[0]), one);
  }
  EXPECT_EQ(drain(queue), "a1 b1 c1 a2 c2 a3 a4 ");
  EXPECT_TRUE(queue.empty());
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(FairQueue, WhatGoesOnIsFirstOfItsClientAndAfterTheOthers) {
  FairQueue<std::string> queue;
  queue.push_back("a", "a1");
  queue.push_back("a", "a2");
  queue.push_back("b", "b1");
  EXPECT_EQ(queue.pop(), "a1");
  queue.push_front("a", "a1 again");
  EXPECT_EQ(drain(queue), "b1 a1 again a2 ");
}

}  // namespace
}  // namespace heddle::gateway
