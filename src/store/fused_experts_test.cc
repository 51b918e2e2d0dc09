#include "store/fused_experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/test_files.h"

namespace heddle::store {
namespace {

/// Numbers 0, 1, 2, ... as bytes.
TestTensor counting(std::vector<std::int64_t> shape, std::size_t count) {
  TestTensor tensor{StoredType::kU8, std::move(shape), std::string(count, '\0')};
  for (std::size_t i = 0; i < count; ++i) {
    tensor.data[i] = static_cast<char>(i);
  }
  return tensor;
}

std::vector<int> numbers(const TensorSet& set, const std::string& name) {
  const TensorSet::Entry* entry = set.find(name);
  if (entry == nullptr) {
    return {};
  }
  std::string data(entry->tensor.bytes, '?');
  EXPECT_TRUE(
      set.file_of(*entry).read(entry->tensor.offset, std::as_writable_bytes(std::span(data))));
  return {data.begin(), data.end()};
}

TEST(FusedExperts, BecomeTheMatricesOfEach) {
  using testing::ElementsAre;
  const TempDirectory directory;
  write_safetensors(
      directory.path() / "model.safetensors",
      {{"before", counting({1}, 1)},
       {"model.language_model.layers.1.mlp.experts.gate_up_proj", counting({2, 4, 3}, 24)},
       {"model.language_model.layers.1.mlp.experts.down_proj", counting({2, 3, 2}, 12)}});
  TensorSet set = TensorSet::open(directory.path()).value();
  split_experts(set);
  EXPECT_EQ(set.entries().size(), 1U + 2 * 3);
  const std::string experts = "model.layers.1.mlp.experts.";
  EXPECT_THAT(numbers(set, experts + "0.gate_proj.weight"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(numbers(set, experts + "0.up_proj.weight"), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(numbers(set, experts + "1.gate_proj.weight"), ElementsAre(12, 13, 14, 15, 16, 17));
  EXPECT_THAT(numbers(set, experts + "1.up_proj.weight"), ElementsAre(18, 19, 20, 21, 22, 23));
  EXPECT_THAT(numbers(set, experts + "0.down_proj.weight"), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(numbers(set, experts + "1.down_proj.weight"), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(set.find(experts + "1.up_proj.weight")->tensor.shape, ElementsAre(2, 3));
}

TEST(FusedExperts, MayBeBesideTheMlp) {
  const TempDirectory directory;
  write_safetensors(directory.path() / "model.safetensors",
                    {{"model.layers.0.experts.gate_up_proj", counting({1, 4, 1}, 4)}});
  TensorSet set = TensorSet::open(directory.path()).value();
  split_experts(set);
  EXPECT_THAT(numbers(set, "model.layers.0.experts.0.up_proj.weight"), testing::ElementsAre(2, 3));
}

TEST(FusedExperts, OfAnotherShapeOrPlaceStayAsTheyAre) {
  const TempDirectory directory;
  write_safetensors(directory.path() / "model.safetensors",
                    {{"model.layers.0.mlp.experts.gate_up_proj", counting({2, 3, 1}, 6)},
                     {"model.layers.0.mlp.experts.down_proj", counting({2, 3}, 6)},
                     {"model.layers.1.mlp.experts.down_proj", counting({1025, 1, 1}, 1025)},
                     {"mtp.layers.0.mlp.experts.down_proj", counting({1, 2, 1}, 2)}});
  TensorSet set = TensorSet::open(directory.path()).value();
  split_experts(set);
  EXPECT_EQ(set.entries().size(), 4U);
  EXPECT_NE(set.find("model.layers.0.mlp.experts.gate_up_proj"), nullptr);
}

}  // namespace
}  // namespace heddle::store
