#include "cli/configured_models.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"

#include <unistd.h>

namespace heddle::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ConfiguredRulesTest : public testing::Test {
 protected:
  ~ConfiguredRulesTest() override { std::filesystem::remove(file_); }

  [[nodiscard]] Result<ConfiguredRules> rules(const std::string& models) const {
    std::ofstream(file_) << "listen: 127.0.0.1:0\ndevices:\n  - {name: cpu0, kind: cpu, memory: "
                            "4MiB, page: 64KiB}\nmodels:\n"
                         << models;
    return configured_rules(file_, {.engines = {{"heddle", {.fixed = 1}}}});
  }

  std::string file_ = testing::TempDir() + "config-" + std::to_string(::getpid()) + ".yaml";
  std::string adder_ = std::string(places::kSources) + "/models/adder";
};

TEST_F(ConfiguredRulesTest, DimensionsAreThoseOfTheFiles) {
  const auto made = rules("  sums: {path: " + adder_ +
                          ", batch: 7, slo: {ttft: 3s, tpot: 80ms}, aliases: [plus]}\n");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->notes, testing::IsEmpty());
  ASSERT_EQ(made->rules.size(), 2U);
  EXPECT_EQ(made->rules[1].label, "plus");
  const sim::ModelSpec spec = find_model(made->rules, "sums").value();
  EXPECT_EQ(spec.shape.hidden, 128);
  EXPECT_EQ(spec.shape.layers, 3);
  EXPECT_EQ(spec.shape.vocab, 263);
  EXPECT_EQ(spec.most_tokens, 512);
  EXPECT_EQ(spec.max_sequences, 7);
  EXPECT_EQ(spec.slo_ttft, std::chrono::seconds(3));
  EXPECT_EQ(spec.slo_tpot, std::chrono::milliseconds(80));
  EXPECT_EQ(spec.engine.fixed, 1);
}

TEST_F(ConfiguredRulesTest, WeightsOfFewerBitsAreCountedWithSixteenAndThatIsSaid) {
  const std::filesystem::path folder = file_ + "-fp8";
  std::filesystem::create_directory(folder);
  std::ifstream plain(adder_ + "/config.json");
  std::string config((std::istreambuf_iterator<char>(plain)), {});
  config.insert(config.find('{') + 1, R"("quantization_config": {"quant_method": "fp8"},)");
  std::ofstream(folder / "config.json") << config;
  const std::string model = "  sums: {path: " + folder.string();
  const auto stored = rules(model + "}\n");
  ASSERT_TRUE(stored) << stored.error().message;
  EXPECT_THAT(stored->notes,
              ElementsAre(HasSubstr("sums: its weights are counted with 16 bits each")));
  EXPECT_THAT(rules(model + ", dtype: bfloat16}\n").value().notes, testing::IsEmpty());
  std::filesystem::remove_all(folder);
}

TEST_F(ConfiguredRulesTest, KvIsCountedAsItIsConfigured) {
  const auto made =
      rules("  wide: {path: " + adder_ + "}\n  whole: {path: " + adder_ +
            ", kv_cache_dtype: int8}\n  float: {path: " + adder_ + ", kv_cache_dtype: fp8}\n");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_THAT(made->notes, testing::IsEmpty());
  const sim::ModelSpec wide = find_model(made->rules, "wide").value();
  const std::int64_t numbers = wide.kv_bytes() / 2;
  EXPECT_EQ(wide.shape.kv_row_bytes, 2 * wide.shape.head_dim);
  for (const char* const name : {"whole", "float"}) {
    const sim::ModelSpec narrow = find_model(made->rules, name).value();
    EXPECT_EQ(narrow.kv_bytes(), numbers + 2 * numbers / narrow.shape.head_dim) << name;
  }
}

TEST_F(ConfiguredRulesTest, WhatCannotBeLookedAtIsSaid) {
  const auto made = rules("  sums: {path: " + adder_ + "}\n  gone: {path: /nowhere/at/all}\n");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->rules.size(), 1U);
  EXPECT_THAT(made->notes, ElementsAre(HasSubstr("gone is left out: ")));
  const auto none = rules("  gone: {path: /nowhere/at/all}\n");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("has no model whose dimensions are known"));
  EXPECT_FALSE(configured_rules("/nowhere.yaml", {}));
}

}  // namespace
}  // namespace heddle::cli
