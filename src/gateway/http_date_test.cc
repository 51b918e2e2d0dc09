#include "gateway/http_date.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

TEST(HttpDate, IsWrittenAsTheStandardHasIt) {
  HttpDate date;
  EXPECT_EQ(date.at(784'111'777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(date.at(784'111'778), "Sun, 06 Nov 1994 08:49:38 GMT");
  EXPECT_EQ(date.at(1'709'208'000), "Thu, 29 Feb 2024 12:00:00 GMT");
}

}  // namespace
}  // namespace heddle::gateway
