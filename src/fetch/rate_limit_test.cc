#include "fetch/rate_limit.h"

#include <gtest/gtest.h>

namespace heddle::fetch {
namespace {

using namespace std::chrono_literals;

TEST(RateLimit, SharesTheRate) {
  RateLimit limit(1000);
  const Instant start{1h};
  EXPECT_EQ(limit.take(250, start), 0ns);  // What was not taken before.
  EXPECT_EQ(limit.take(500, start), 500ms);
  EXPECT_EQ(limit.take(500, start + 100ms), 900ms);
  EXPECT_EQ(limit.take(100, start + 1h), 0ns);
}

TEST(RateLimit, NoneIsNoWait) {
  RateLimit limit(0);
  EXPECT_EQ(limit.take(1U << 30U, Instant{}), 0ns);
  limit.take_and_wait(1U << 30U, {});
}

}  // namespace
}  // namespace heddle::fetch
