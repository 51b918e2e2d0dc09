#include "policy/group_share.h"

#include <gtest/gtest.h>

namespace heddle::policy {
namespace {

TEST(KvShare, HoldsWhatIsNeededAndAQuarterMore) {
  EXPECT_EQ(share_to_hold(/*need=*/40, /*least=*/8), 50);
  EXPECT_EQ(share_to_hold(/*need=*/41, /*least=*/8), 52) << "parts of pages are pages";
}

TEST(KvShare, HoldsTheLeastWhereNothingRuns) {
  EXPECT_EQ(share_to_hold(/*need=*/0, /*least=*/8), 8);
}

TEST(KvShare, IsTooLargeAtTwiceWhatItWouldHold) {
  EXPECT_FALSE(share_too_large(/*held=*/100, /*needed=*/40, /*least=*/8));
  EXPECT_TRUE(share_too_large(/*held=*/101, /*needed=*/40, /*least=*/8));
  EXPECT_FALSE(share_too_large(/*held=*/8, /*needed=*/0, /*least=*/8));
}

}  // namespace
}  // namespace heddle::policy
