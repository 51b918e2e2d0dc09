#include "store/adapter.h"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "store/test_adapter.h"

namespace heddle::store {
namespace {

/// A directory with a random adapter of tiny_model(), to be spoilt.
class AdapterTest : public testing::Test {
 protected:
  AdapterTest() { adapter_.write(directory_.path()); }

  [[nodiscard]] Result<Adapter> open(const spec::ModelSpec& base = tiny_model(),
                                     spec::DType weights = spec::DType::kF32) const {
    return Adapter::open(directory_.path(), base, weights);
  }
  /// What is said of the adapter as it is now.
  [[nodiscard]] std::string said(const spec::ModelSpec& base = tiny_model()) {
    adapter_.write(directory_.path());
    const auto opened = open(base);
    return opened ? "nothing" : opened.error().message;
  }
  [[nodiscard]] static std::string name(int layer, std::string_view module, char half) {
    return fmt::format("base_model.model.model.layers.{}.{}.lora_{}.weight", layer, module, half);
  }

  Rng rng_{7};
  TestTensors model_ = plausible_model(tiny_model(), rng_);
  TestAdapter adapter_ = random_adapter(model_, rng_);
  TempDirectory directory_{};
};

TEST_F(AdapterTest, FindsThePairsOfEveryProjectionInOrder) {
  const auto opened = open();
  ASSERT_TRUE(opened) << opened.error().message;
  ASSERT_EQ(opened->pairs().size(), 14U);
  std::uint64_t end = 0;
  for (const AdapterPair& pair : opened->pairs()) {
    EXPECT_EQ(pair.a_offset % 64, 0U);
    EXPECT_EQ(pair.b_offset % 64, 0U);
    EXPECT_GE(pair.a_offset, end);
    EXPECT_GT(pair.b_offset, pair.a_offset);
    end = pair.b_offset + static_cast<std::uint64_t>(pair.outputs * 4) * sizeof(float);
  }
  EXPECT_LE(end, opened->image_bytes());
  const AdapterPair& value = opened->pairs()[2];
  EXPECT_EQ(value.target, AdapterTarget::kQkv);
  EXPECT_EQ(value.first, 48);  // Behind 4 heads of queries and 2 of keys, of 8 each.
  EXPECT_EQ(value.outputs, 16);
  EXPECT_EQ(value.inputs, 24);
}

TEST_F(AdapterTest, LoadsAAsItIsAndBTimesTheScale) {
  const auto opened = open();
  ASSERT_TRUE(opened);
  std::vector<std::byte> image(opened->image_bytes());
  ASSERT_TRUE(opened->load(image));
  const AdapterPair& pair = opened->pairs()[0];
  const auto number = [&](std::uint64_t offset) {
    float value = 0;
    std::memcpy(&value, image.data() + offset, sizeof(value));
    return value;
  };
  const auto a = floats_of(adapter_.tensors.at(name(0, "self_attn.q_proj", 'A')));
  const auto b = floats_of(adapter_.tensors.at(name(0, "self_attn.q_proj", 'B')));
  EXPECT_EQ(number(pair.a_offset + 5 * sizeof(float)), a[5]);
  EXPECT_EQ(number(pair.b_offset + 9 * sizeof(float)), b[9] * 2.0F);
  const auto narrow = open(tiny_model(), spec::DType::kI8);
  ASSERT_TRUE(narrow);
  EXPECT_EQ(narrow->dtype(), spec::DType::kBf16);
  EXPECT_LT(narrow->image_bytes(), opened->image_bytes());
}

TEST_F(AdapterTest, AnotherBaseIsToldByShapes) {
  spec::ModelSpec other = tiny_model();
  other.hidden = 32;
  const std::string why = said(other);
  EXPECT_NE(why.find("adapter_model.safetensors: tensor base_model"), std::string::npos) << why;
  EXPECT_NE(why.find("lora_B.weight is [24, 4]"), std::string::npos) << why;
  EXPECT_NE(why.find("[32, 4]"), std::string::npos) << why;
  other = tiny_model();
  other.layers = 1;
  EXPECT_NE(said(other).find("is of layer 1; this base has 1"), std::string::npos);
}

TEST_F(AdapterTest, ARankThatIsNotTheTensorsIsToldWithBoth) {
  adapter_.rank = 8;
  const std::string why = said();
  EXPECT_NE(why.find("is [4, 40]"), std::string::npos) << why;
  EXPECT_NE(why.find("with r 8"), std::string::npos) << why;
}

TEST_F(AdapterTest, HalfAPairIsNamed) {
  adapter_.tensors.erase(name(1, "mlp.up_proj", 'B'));
  EXPECT_NE(said().find(name(1, "mlp.up_proj", 'A') + " is there without its lora_B"),
            std::string::npos);
}

TEST_F(AdapterTest, AModuleIsThereWholeOrInItsParts) {
  adapter_.tensors[name(0, "mlp.gate_up_proj", 'A')] =
      tensor_of(std::vector<float>(std::size_t{4} * 24), {4, 24});
  adapter_.tensors[name(0, "mlp.gate_up_proj", 'B')] =
      tensor_of(std::vector<float>(std::size_t{80} * 4), {80, 4});
  const std::string why = said();
  EXPECT_NE(why.find("change the same outputs"), std::string::npos) << why;
  EXPECT_NE(why.find("gate_up_proj"), std::string::npos) << why;
}

TEST_F(AdapterTest, UnknownModulesAndTensorsAreNamed) {
  adapter_.tensors[name(0, "self_attn.x_proj", 'A')] = tensor_of(std::vector<float>(96), {4, 24});
  EXPECT_NE(said().find("is of module self_attn.x_proj; those of this base"), std::string::npos);
  adapter_.tensors.erase(name(0, "self_attn.x_proj", 'A'));
  adapter_.tensors["base_model.model.lm_head.weight"] = tensor_of({1.0F}, {1});
  EXPECT_NE(said().find("tensor base_model.model.lm_head.weight is no lora_A"), std::string::npos);
}

TEST_F(AdapterTest, BasesThatCannotHaveOneAreRefused) {
  spec::ModelSpec base = tiny_model();
  base.attention_gate = true;
  EXPECT_NE(said(base).find("linear or gated attention"), std::string::npos);
  base = tiny_model();
  base.global_head_dim = 8;
  EXPECT_NE(said(base).find("heads of two sizes"), std::string::npos);
  base = tiny_model();
  base.shard.ranks = 2;
  EXPECT_NE(said(base).find("sharded or cut into stages"), std::string::npos);
  base = tiny_model();
  base.experts.count = 4;
  EXPECT_NE(said(base).find("is of module mlp."), std::string::npos);
}

TEST_F(AdapterTest, IdentityFollowsTheFiles) {
  const std::string before = adapter_identity(directory_.path()).value();
  EXPECT_EQ(open()->identity(), before);
  adapter_ = random_adapter(model_, rng_, 2);
  adapter_.write(directory_.path());
  EXPECT_NE(adapter_identity(directory_.path()).value(), before);
  ASSERT_TRUE(open()->read_through());
  std::filesystem::remove(directory_.path() / "adapter_model.safetensors");
  EXPECT_EQ(adapter_identity(directory_.path()).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace heddle::store
