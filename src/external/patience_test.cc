#include "external/patience.h"

#include <chrono>

#include <gtest/gtest.h>

namespace heddle::external {
namespace {

using namespace std::chrono_literals;

TEST(Patience, LooksUntilItIsDone) {
  int looks = 0;
  EXPECT_TRUE(wait_until([&] { return ++looks == 4; }, 1min));
  EXPECT_EQ(looks, 4);
}

TEST(Patience, LooksOnceAtLeastAndHasAnEnd) {
  int looks = 0;
  EXPECT_TRUE(wait_until([&] { return ++looks == 1; }, 0s));
  EXPECT_FALSE(wait_until([&] { return ++looks == 0; }, 1ms));
  EXPECT_GT(looks, 1);
}

}  // namespace
}  // namespace heddle::external
