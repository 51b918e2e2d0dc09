#include "store/turned_experts.h"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "store/convert.h"
#include "store/packed_matrix.h"
#include "store/test_files.h"

namespace heddle::store {
namespace {

using testing::ElementsAre;

constexpr const char* kExperts = "model.layers.0.mlp.experts.";

/// Float32 numbers 0, 1, 2, ...
TestTensor counting_floats(std::vector<std::int64_t> shape, std::size_t count) {
  TestTensor tensor{StoredType::kF32, std::move(shape), std::string(count * sizeof(float), '\0')};
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(tensor.data.data() + i * sizeof(float), &value, sizeof(value));
  }
  return tensor;
}

TestTensor bytes_tensor(std::vector<std::int64_t> shape, std::string data) {
  return {StoredType::kU8, std::move(shape), std::move(data)};
}

/// A set of these tensors and of a router, by which layers of such models are known.
class TurnedExperts : public testing::Test {
 protected:
  TensorSet split(TestTensors tensors) {
    tensors["model.layers.0.mlp.router.weight"] = counting_floats({2, 1}, 2);
    write_safetensors(directory_.path() / "model.safetensors", tensors);
    TensorSet set = TensorSet::open(directory_.path()).value();
    split_turned_experts(set);
    return set;
  }

  /// Rows [first, first + rows) of a matrix, as float32.
  static std::vector<float> read_rows(const TensorSet& set,
                                      const std::string& name,
                                      std::int64_t first,
                                      std::int64_t rows) {
    const TensorSet::Entry* entry = set.find(kExperts + name);
    if (entry == nullptr || entry->packed == nullptr) {
      ADD_FAILURE() << name << " is not there";
      return {};
    }
    const ReadPart read = [&set](std::size_t file, std::uint64_t at, std::span<std::byte> target) {
      return set.files()[file].read(at, target);
    };
    auto opened = PackedRows::open(*entry->packed, read).value();
    const auto count = static_cast<std::uint64_t>(rows * entry->packed->columns);
    std::vector<std::byte> stored(stored_bytes(entry->tensor.type, count));
    EXPECT_TRUE(opened.read(first, rows, read, stored));
    std::vector<float> values(count);
    convert(entry->tensor.type,
            stored.data(),
            spec::DType::kF32,
            reinterpret_cast<std::byte*>(values.data()),
            count);
    return values;
  }

  TempDirectory directory_{};
};

TEST_F(TurnedExperts, PlainOnesAreTurnedAndTakenApart) {
  const TensorSet set =
      split({{std::string(kExperts) + "gate_up_proj", counting_floats({2, 3, 4}, 24)},
             {std::string(kExperts) + "gate_up_proj_bias", counting_floats({2, 4}, 8)},
             {std::string(kExperts) + "down_proj", counting_floats({2, 2, 3}, 12)},
             {std::string(kExperts) + "down_proj_bias", counting_floats({2, 3}, 6)}});
  EXPECT_EQ(set.entries().size(), 1U + 2 * 6);
  // Inputs are rows of the file, and gates and ups take turns in its columns.
  EXPECT_THAT(read_rows(set, "0.gate_proj.weight", 0, 2), ElementsAre(0, 4, 8, 2, 6, 10));
  EXPECT_THAT(read_rows(set, "0.up_proj.weight", 0, 2), ElementsAre(1, 5, 9, 3, 7, 11));
  EXPECT_THAT(read_rows(set, "1.up_proj.weight", 1, 1), ElementsAre(15, 19, 23));
  EXPECT_THAT(read_rows(set, "1.down_proj.weight", 0, 3), ElementsAre(6, 9, 7, 10, 8, 11));
  EXPECT_THAT(read_rows(set, "1.gate_proj.bias", 0, 2), ElementsAre(4, 6));
  EXPECT_THAT(read_rows(set, "1.up_proj.bias", 1, 1), ElementsAre(7));
  EXPECT_THAT(read_rows(set, "1.down_proj.bias", 0, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(set.find(std::string(kExperts) + "1.gate_proj.weight")->tensor.shape,
              ElementsAre(2, 3));
}

TEST_F(TurnedExperts, BlocksOfMxfp4KeepTheirBits) {
  // Two experts of four rows, gates and ups by turns: row r has 1.5 times a power of two.
  std::string blocks;
  std::string scales;
  for (int row = 0; row < 8; ++row) {
    blocks += std::string(15, '\x33') + '\xA3';  // The last number is -1.
    scales += static_cast<char>(127 + row);
  }
  const TensorSet set =
      split({{std::string(kExperts) + "gate_up_proj_blocks", bytes_tensor({2, 4, 1, 16}, blocks)},
             {std::string(kExperts) + "gate_up_proj_scales", bytes_tensor({2, 4, 1}, scales)}});
  EXPECT_EQ(set.entries().size(), 1U + 2 * 2);
  const std::vector<float> up = read_rows(set, "1.up_proj.weight", 0, 2);
  ASSERT_EQ(up.size(), 64U);
  EXPECT_EQ(up[0], 1.5F * 32);
  EXPECT_EQ(up[30], 1.5F * 32);
  EXPECT_EQ(up[31], -1.0F * 32);
  EXPECT_EQ(up[32], 1.5F * 128);
  EXPECT_EQ(read_rows(set, "0.gate_proj.weight", 1, 1)[0], 1.5F * 4);
  const auto& packed = *set.find(std::string(kExperts) + "1.up_proj.weight")->packed;
  const std::vector<PartBytes> parts = parts_of(packed, 0, 2);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].end - parts[0].begin, 3U) << "scales, and that of the gate between";
  EXPECT_EQ(parts[1].end - parts[1].begin, 48U);
}

TEST_F(TurnedExperts, OfAnotherShapeStayAsTheyAre) {
  const TensorSet set =
      split({{std::string(kExperts) + "gate_up_proj", counting_floats({2, 3, 5}, 30)},
             {std::string(kExperts) + "down_proj_bias", counting_floats({6}, 6)},
             {std::string(kExperts) + "down_proj_blocks",
              bytes_tensor({1, 2, 1, 8}, std::string(16, ' '))},
             {std::string(kExperts) + "down_proj_scales", bytes_tensor({1, 2, 1}, "  ")}});
  EXPECT_EQ(set.entries().size(), 5U);
  EXPECT_NE(set.find(std::string(kExperts) + "gate_up_proj"), nullptr);
}

}  // namespace
}  // namespace heddle::store
