#include "api/utc_time.h"

#include <gtest/gtest.h>

namespace heddle::api {
namespace {

TEST(UtcTime, IsThatOfRfc3339) {
  EXPECT_EQ(utc_time(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(utc_time(951'827'696'000'000'007), "2000-02-29T12:34:56.000000007Z");
  EXPECT_EQ(utc_time(-1), "1969-12-31T23:59:59.999999999Z");
}

}  // namespace
}  // namespace heddle::api
