#include "base/time.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(Time, SecondsAreWholeNanoseconds) {
  EXPECT_EQ(from_seconds(1.4e-9), Duration(1));
  EXPECT_EQ(from_seconds(1.6e-9), Duration(2));
  EXPECT_EQ(from_seconds(-1.6e-9), Duration(-2));
  EXPECT_EQ(from_seconds(3600), std::chrono::hours(1));
}

TEST(Time, SecondsThereAndBack) {
  EXPECT_DOUBLE_EQ(to_seconds(std::chrono::milliseconds(1500)), 1.5);
  EXPECT_EQ(from_seconds(to_seconds(Duration(-123'456'789))), Duration(-123'456'789));
}

TEST(TimeDeathTest, SecondsThatDoNotFit) {
  EXPECT_DEATH(static_cast<void>(from_seconds(1e10)), "seconds");
}

}  // namespace
}  // namespace heddle
