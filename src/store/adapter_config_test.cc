#include "store/adapter_config.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <gtest/gtest.h>

#include "store/test_adapter.h"

namespace heddle::store {
namespace {

Result<AdapterConfig> read_config(const std::string& text) {
  const TempDirectory directory;
  write_text(directory.path() / "adapter_config.json", text);
  return read_adapter_config(directory.path());
}

TEST(AdapterConfigTest, ScaleIsAlphaOverRankOrItsRoot) {
  const auto plain = read_config(TestAdapter{.rank = 16, .alpha = 24}.config());
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ(plain->rank, 16);
  EXPECT_DOUBLE_EQ(plain->scale, 1.5);
  EXPECT_EQ(plain->base, "some/base");
  EXPECT_TRUE(plain->targets.empty());
  const auto stable = read_config(TestAdapter{.rank = 16, .alpha = 24, .rslora = true}.config());
  ASSERT_TRUE(stable);
  EXPECT_DOUBLE_EQ(stable->scale, 6.0);
}

TEST(AdapterConfigTest, NamesItsTargets) {
  const auto config = read_config(
      R"({"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"],
          "modules_to_save": null, "rank_pattern": {}, "use_dora": false})");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->targets, (std::vector<std::string>{"q_proj", "v_proj"}));
}

TEST(AdapterConfigTest, RefusesWhatWouldChangeTheMathematics) {
  for (const auto& [more, named] : {std::pair(R"(, "use_dora": true)", "use_dora is true"),
                                    std::pair(R"(, "modules_to_save": ["lm_head", "norm"])",
                                              R"(modules_to_save is "lm_head", "norm")"),
                                    std::pair(R"(, "rank_pattern": {"q_proj": 2})", "rank_pattern"),
                                    std::pair(R"(, "lora_bias": true)", "lora_bias"),
                                    std::pair(R"(, "fan_in_fan_out": true)", "fan_in_fan_out")}) {
    const auto config = read_config(TestAdapter{}.config(more));
    ASSERT_FALSE(config) << more;
    EXPECT_EQ(config.error().code, Code::kInvalidArgument);
    EXPECT_NE(config.error().message.find(named), std::string::npos) << config.error().message;
    EXPECT_NE(config.error().message.find("adapter_config.json: "), std::string::npos);
  }
}

TEST(AdapterConfigTest, RefusesOtherKindsBiasesAndRanks) {
  for (const auto& [text, named] :
       {std::pair(R"({"peft_type": "IA3"})", R"(peft_type is "IA3")"),
        std::pair(R"({"peft_type": "LORA", "r": 8, "bias": "all"})", R"(bias is "all")"),
        std::pair(R"({"peft_type": "LORA", "r": 0})", "r is 0"),
        std::pair(R"({"peft_type": "LORA", "r": 4096})", "r is 4096"),
        std::pair(R"({"peft_type": "LORA"})", "r is missing"),
        std::pair("nothing", "adapter_config.json")}) {
    const auto config = read_config(text);
    ASSERT_FALSE(config) << text;
    EXPECT_NE(config.error().message.find(named), std::string::npos) << config.error().message;
  }
}

TEST(AdapterConfigTest, ADirectoryWithoutIsNoAdapter) {
  const TempDirectory directory;
  EXPECT_FALSE(is_adapter(directory.path()));
  EXPECT_EQ(read_adapter_config(directory.path()).error().code, Code::kNotFound);
  TestAdapter{}.write(directory.path());
  EXPECT_TRUE(is_adapter(directory.path()));
}

}  // namespace
}  // namespace heddle::store
