#include "gateway/http_exchange.h"

#include <gtest/gtest.h>

#include "core/background.h"

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

TEST(QueryValue, FindsParametersByTheirDecodedNames) {
  EXPECT_EQ(query_value("a=1&model=org%2Fx&b", "model"), "org/x");
  EXPECT_EQ(query_value("m%6fdel=x", "model"), "x");
  EXPECT_EQ(query_value("a&b=", "a"), "");
  EXPECT_EQ(query_value("a&b=", "b"), "");
  EXPECT_EQ(query_value("models=1", "model"), std::nullopt);
  EXPECT_EQ(query_value("", "model"), std::nullopt);
}

TEST(HttpExchange, RequestsInTheBackgroundHaveOneShare) {
  HttpRequest request{.principal = {.tenant = "t"}, .peer = "10.0.0.1"};
  EXPECT_EQ(asker_of(request).share, "t");
  request.principal.least_priority = core::kBackgroundPriority;
  EXPECT_EQ(asker_of(request).share, kBackgroundShare);
  EXPECT_EQ(asker_of(request).tenant, "t");
}

}  // namespace
}  // namespace heddle::gateway
