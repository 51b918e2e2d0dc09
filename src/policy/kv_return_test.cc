#include "policy/kv_return.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr KvReturn kQuick{.pages = 4, .per_page = 10us, .tokens = 64, .per_token = 1us};

TEST(WorthBringingBack, IsWhatTakesLessThanComputing) {
  EXPECT_TRUE(worth_bringing_back(kQuick));
  KvReturn slow = kQuick;
  slow.per_page = 16us;
  EXPECT_FALSE(worth_bringing_back(slow)) << "as long is no gain";
  slow.tokens = 65;
  EXPECT_TRUE(worth_bringing_back(slow));
}

TEST(WorthBringingBack, IsTriedWhereNothingWasMeasured) {
  KvReturn kv = kQuick;
  kv.per_page = {};
  EXPECT_TRUE(worth_bringing_back(kv));
  kv = {.pages = 4, .per_page = 1s, .tokens = 64};
  EXPECT_TRUE(worth_bringing_back(kv));
  kv.tokens = 0;
  EXPECT_FALSE(worth_bringing_back(kv));
}

TEST(WithMeasured, FollowsWhatIsMeasured) {
  EXPECT_EQ(with_measured({}, 8us), 8us);
  EXPECT_EQ(with_measured(8us, 16us), 10us);
  EXPECT_EQ(with_measured({}, {}), Duration{1}) << "something was measured";
  Duration average = 1us;
  for (int i = 0; i < 40; ++i) {
    average = with_measured(average, 100us);
  }
  EXPECT_GT(average, 90us);
}

}  // namespace
}  // namespace heddle::policy
