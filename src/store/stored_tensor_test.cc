#include "store/stored_tensor.h"

#include <gtest/gtest.h>

namespace heddle::store {
namespace {

TEST(StoredType, IsTheSameForPlainNumbersOfBothFormats) {
  EXPECT_EQ(stored_type_of(gguf::BlockType::kBf16), StoredType::kBf16);
  EXPECT_EQ(block_type_of(StoredType::kF16), gguf::BlockType::kF16);
  EXPECT_EQ(block_type_of(StoredType::kF8E4M3), std::nullopt);
}

TEST(StoredType, OfBlocksIsTheirs) {
  const StoredType type = stored_type_of(gguf::BlockType::kQ4K);
  EXPECT_EQ(block_type_of(type), gguf::BlockType::kQ4K);
  EXPECT_EQ(stored_type_name(type), "Q4_K");
  EXPECT_EQ(stored_type_elements(type), 256U);
  EXPECT_EQ(stored_type_bits(type), 144U * 8);
  EXPECT_EQ(stored_bytes(type, 512), 288U);
  EXPECT_EQ(stored_bytes(StoredType::kBf16, 3), 6U);
}

TEST(StoredType, OfScaledFp8IsOfNoFile) {
  EXPECT_EQ(block_type_of(StoredType::kF8Scaled), std::nullopt);
  EXPECT_EQ(matrix_format(StoredType::kF8Scaled), spec::DType::kF8);
  EXPECT_EQ(stored_type_name(StoredType::kF8Scaled), "FP8");
  EXPECT_EQ(find_stored_type("FP8"), std::nullopt);
}

TEST(StoredType, IsAFormatOfMatricesWhereItIsBlocks) {
  EXPECT_EQ(matrix_format(stored_type_of(gguf::BlockType::kQ4K)), spec::DType::kQ4K);
  EXPECT_EQ(matrix_format(StoredType::kF8E4M3), spec::DType::kBf16);
  EXPECT_EQ(matrix_format(StoredType::kF32), spec::DType::kBf16);
}

TEST(StoredType, OfSafetensorsHasAName) {
  EXPECT_EQ(find_stored_type("F8_E5M2"), StoredType::kF8E5M2);
  EXPECT_EQ(find_stored_type("Q4_K"), std::nullopt);
}

}  // namespace
}  // namespace heddle::store
