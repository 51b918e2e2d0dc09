#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"

namespace heddle::config {
namespace {

using testing::HasSubstr;

TEST(ModelParts, AShareOfExpertsIsOfWholeModels) {
  const auto parsed = [](const std::string& keys) {
    return parse_config("models: {m: {path: x" + keys + "}}",
                        "f",
                        process_environment,
                        {.cores = {0}, .memory = 1ULL << 30U});
  };
  EXPECT_EQ(parsed("")->models[0].experts_resident, 1.0);
  EXPECT_EQ(parsed(", experts: {resident: 0.25}")->models[0].experts_resident, 0.25);
  for (const char* wrong : {"experts: {resident: 1.5}",
                            "experts: {resident: half}",
                            "experts: {resident: 0.5}, tensor_parallel: 2"}) {
    const auto refused = parsed(std::string(", ") + wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_THAT(refused.error().message, HasSubstr("experts"));
  }
}

}  // namespace
}  // namespace heddle::config
