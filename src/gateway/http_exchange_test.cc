#include "gateway/http_exchange.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

TEST(PercentDecode, MakesCodesCharactersAndLeavesTheRest) {
  EXPECT_EQ(percent_decode("org%2Fname%3a8b"), "org/name:8b");
  EXPECT_EQ(percent_decode("%41"), "A");
  EXPECT_EQ(percent_decode("100%"), "100%");
  EXPECT_EQ(percent_decode("%zz%4"), "%zz%4");
  EXPECT_EQ(percent_decode("%-1"), "%-1");
  EXPECT_EQ(percent_decode(""), "");
}

}  // namespace
}  // namespace heddle::gateway
