#include "gateway/api_keys.h"

#include <gtest/gtest.h>

namespace heddle::gateway {
namespace {

TEST(ApiKeys, WithoutKeysEverybodyMayComeIn) {
  EXPECT_EQ(ApiKeys({}).admit({})->role, config::Role::kAdmin);
}

TEST(ApiKeys, AnyKeyInAnyForm) {
  const ApiKeys keys({{.text = "sesame"}, {.text = "other"}});
  EXPECT_TRUE(keys.admit({.authorization = "Bearer sesame"}));
  EXPECT_TRUE(keys.admit({.authorization = "bearer other"}));
  EXPECT_TRUE(keys.admit({.api_key = "other"}));
  EXPECT_TRUE(keys.admit({.authorization = "Basic dXNlcjpzZXNhbWU="}));  // user:sesame
  EXPECT_TRUE(keys.admit({.authorization = "Basic OnNlc2FtZQ=="}));      // :sesame
}

TEST(ApiKeys, AnythingElseStaysOut) {
  const ApiKeys keys({{.text = "sesame"}});
  for (const char* authorization : {"",
                                    "sesame",
                                    "Bearer",
                                    "Bearer ",
                                    "Bearer sesam",
                                    "Bearer sesamesesame",
                                    "Bearer Sesame",
                                    "Basic sesame",
                                    "Basic c2VzYW1l",
                                    "Basic !!!!",
                                    "Digest sesame"}) {
    EXPECT_FALSE(keys.admit({.authorization = authorization})) << authorization;
  }
  EXPECT_FALSE(keys.admit({.api_key = "wrong"}));
  EXPECT_FALSE(keys.admit({.authorization = "Bearer sesame", .api_key = "wrong"}));
}

TEST(ApiKeys, TellWhatTheirHoldersMayDo) {
  const ApiKeys keys({{.text = "a", .principal = {.least_priority = 3}}, {.text = "b"}});
  EXPECT_EQ(keys.admit({.api_key = "a"})->least_priority, 3);
  EXPECT_EQ(keys.admit({.api_key = "b"})->least_priority, INT32_MIN);
}

}  // namespace
}  // namespace heddle::gateway
