#include "gguf/blocks.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/test_places.h"
#include "gguf/gguf_file.h"

namespace heddle::gguf {
namespace {

/// What tests/golden/make_gguf_blocks.py had the package `gguf` make of random blocks.
TEST(Decode, GivesTheBitsOfTheReference) {
  const GgufFile golden =
      GgufFile::open(places::source("tests/golden/gguf/blocks.gguf"), Keep::kAll).value();
  int types = 0;
  for (const Tensor& stored : golden.tensors) {
    const Tensor* expected = golden.tensor(stored.name + ".f32");
    if (expected == nullptr) {
      continue;
    }
    ++types;
    const auto count = static_cast<std::size_t>(stored.shape[0] * stored.shape[1]);
    std::vector<std::byte> blocks(stored.bytes);
    std::vector<float> wanted(count);
    std::vector<float> numbers(count);
    ASSERT_TRUE(golden.files[0].read(stored.offset, blocks));
    ASSERT_TRUE(golden.files[0].read(expected->offset, std::as_writable_bytes(std::span(wanted))));

    decode(stored.type, blocks.data(), numbers.data(), count);

    EXPECT_EQ(std::memcmp(numbers.data(), wanted.data(), count * sizeof(float)), 0) << stored.name;
  }
  EXPECT_EQ(types, 11);
}

TEST(Decode, CopiesFloat32) {
  const std::vector<float> numbers = {1.5F, -0.0F, 3e-40F};
  std::vector<float> decoded(3);
  decode(BlockType::kF32, reinterpret_cast<const std::byte*>(numbers.data()), decoded.data(), 3);
  EXPECT_EQ(decoded, numbers);
}

TEST(BlockShape, OfAnUnknownIdIsNone) {
  EXPECT_EQ(find_block_shape(5), std::nullopt);
  EXPECT_EQ(find_block_shape(1000), std::nullopt);
  ASSERT_NE(find_block_shape(17), std::nullopt);
  EXPECT_EQ(find_block_shape(17)->name, "IQ2_XS");
  EXPECT_FALSE(find_block_shape(17)->decodes);
}

TEST(BlockShape, WhatIsDecodedIsListed) {
  EXPECT_EQ(decoded_types(),
            "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, MXFP4");
}

}  // namespace
}  // namespace heddle::gguf
