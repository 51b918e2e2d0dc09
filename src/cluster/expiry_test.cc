#include "cluster/expiry.h"

#include <gtest/gtest.h>

namespace heddle::cluster {
namespace {

using namespace std::chrono_literals;

struct ExpiryTest : testing::Test {
  /// Looks every 100 ms for so long.
  void pass(Duration time) {
    for (const Instant end = now + time; now < end; now += 100ms) {
      expiry.reached(now);
    }
    expiry.reached(now);
  }
  Instant now{};
  Expiry expiry{};
};

TEST_F(ExpiryTest, IsDueWhenNobodyHasPutItForItsLife) {
  expiry.saw("a", 5, 1s);
  expiry.saw("b", 6, 0s);
  pass(1s);
  EXPECT_TRUE(expiry.take_due().empty());
  pass(100ms);
  EXPECT_EQ(expiry.take_due(), (std::vector<Record>{{.key = "a", .revision = 5}}));
  EXPECT_TRUE(expiry.take_due().empty()) << "it counts as seen anew";
}

TEST_F(ExpiryTest, LivesOnWithEachRevisionAndNotWithTheSameSeenAgain) {
  expiry.saw("a", 5, 1s);
  pass(900ms);
  expiry.saw("a", 5, 1s);
  expiry.saw("b", 1, 1s);
  expiry.saw("b", 2, 1s);
  pass(300ms);
  EXPECT_EQ(expiry.take_due(), (std::vector<Record>{{.key = "a", .revision = 5}}));
}

TEST_F(ExpiryTest, DoesNotCountTimeInWhichTheStoreWasAway) {
  expiry.saw("a", 5, 1s);
  pass(900ms);
  expiry.not_reached();
  now += 1h;
  pass(50ms);
  EXPECT_TRUE(expiry.take_due().empty());
  pass(200ms);
  EXPECT_EQ(expiry.take_due().size(), 1U);
}

TEST_F(ExpiryTest, SaysHowOftenToLook) {
  EXPECT_EQ(expiry.interval(), std::nullopt);
  expiry.saw("a", 5, 8s);
  EXPECT_EQ(expiry.interval(), 1s);
  expiry.saw("b", 5, 80ms);
  EXPECT_EQ(expiry.interval(), 10ms);
  EXPECT_EQ(expiry.any(), "a");
  expiry.forget("b");
  expiry.saw("a", 6, 0s);
  EXPECT_EQ(expiry.interval(), std::nullopt);
}

}  // namespace
}  // namespace heddle::cluster
