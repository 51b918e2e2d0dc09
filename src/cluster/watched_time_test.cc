#include "cluster/watched_time.h"

#include <gtest/gtest.h>

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;

TEST(WatchedTimeTest, CountsSmallStepsAndOnlyPartOfLongOnes) {
  WatchedTime time;
  const Instant start{};
  EXPECT_EQ(time.look(start + 5s, 50ms), 0ms);
  EXPECT_EQ(time.look(start + 5s + 30ms, 50ms), 30ms);
  EXPECT_EQ(time.look(start + 1h, 50ms), 80ms);
  EXPECT_EQ(time.look(start, 50ms), 80ms);
}

TEST(WatchedTimeTest, CountsNothingWhileItLooksAway) {
  WatchedTime time;
  const Instant start{};
  time.look(start, 50ms);
  time.look_away();
  EXPECT_EQ(time.look(start + 40ms, 50ms), 0ms);
  EXPECT_EQ(time.look(start + 50ms, 50ms), 10ms);
}

}  // namespace
}  // namespace heddle::cluster
