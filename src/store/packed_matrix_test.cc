#include "store/packed_matrix.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/f8_panels.h"
#include "store/convert.h"
#include "store/test_packed.h"

namespace heddle::store {
namespace {

using spec::Packing;
using spec::Quantisation;
using testing::HasSubstr;

/// A packed matrix whose parts lie behind each other in one string.
struct Stored {
  PackedMatrix matrix{};
  std::string file{};

  Stored() = default;
  explicit Stored(const TestPacked& packed) {
    matrix.how = packed.how;
    matrix.rows = packed.rows;
    matrix.columns = packed.columns;
    for (auto& [name, tensor] : tensors_of(packed)) {
      PackedMatrix::Part part{.tensor = {.name = name,
                                         .type = tensor.type,
                                         .shape = tensor.shape,
                                         .offset = file.size(),
                                         .bytes = tensor.data.size()}};
      file += tensor.data;
      if (name.ends_with("qweight") || name.ends_with("packed")) {
        matrix.numbers = part;
      } else if (name.ends_with("scales") || name.ends_with("scale")) {
        matrix.scales = part;
      } else if (name.ends_with("g_idx")) {
        matrix.groups = packed.how.ordered ? std::optional(part) : std::nullopt;
      } else {
        matrix.zeros = part;
      }
    }
  }

  [[nodiscard]] ReadPart reader() const {
    return [this](std::size_t, std::uint64_t offset, std::span<std::byte> target) {
      EXPECT_LE(offset + target.size(), file.size());
      std::memcpy(target.data(), file.data() + offset, target.size());
      return Result<void>();
    };
  }

  /// Rows as float32, however they are given.
  [[nodiscard]] std::vector<float> read(std::int64_t first, std::int64_t rows) const {
    Result<PackedRows> opened = PackedRows::open(matrix, reader());
    EXPECT_TRUE(opened) << opened.error().message;
    const auto count = static_cast<std::size_t>(rows * matrix.columns);
    std::vector<std::byte> bytes(stored_bytes(rows_type(matrix), count));
    EXPECT_TRUE(opened->read(first, rows, reader(), bytes));
    std::vector<float> values(count);
    convert(rows_type(matrix),
            bytes.data(),
            spec::DType::kF32,
            reinterpret_cast<std::byte*>(values.data()),
            count);
    return values;
  }
};

struct Case {
  Quantisation how;
  const char* type;
};

class PackedMatrixTest : public testing::TestWithParam<Case> {};

TEST_P(PackedMatrixTest, RowsAreTheNumbersOfTheFormula) {
  Rng rng(5);
  const TestPacked packed = random_packed(GetParam().how, 200, 128, rng);
  const Stored stored(packed);
  EXPECT_EQ(stored_type_name(rows_type(stored.matrix)), GetParam().type);
  for (const auto& [first, rows] : {std::pair{0, 200}, std::pair{7, 1}, std::pair{64, 130}}) {
    const std::vector<float> values = stored.read(first, rows);
    // Of Q4_1 the zero times the scale is rounded to float16.
    const float bound = std::string(GetParam().type) == "Q4_1" ? 0x1p-12F : 0.0F;
    for (std::int64_t i = 0; i < rows * 128; ++i) {
      ASSERT_NEAR(
          values[static_cast<std::size_t>(i)], packed.value(first + i / 128, i % 128), bound)
          << "row " << first + i / 128 << ", column " << i % 128;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    PackedMatrixTest,
    testing::Values(
        Case{{.packing = Packing::kAwq, .bits = 4, .group = 32}, "Q4_1"},
        Case{{.packing = Packing::kAwq, .bits = 4, .group = 16}, "F32"},
        Case{{.packing = Packing::kGptq,
              .bits = 4,
              .group = 64,
              .symmetric = true,
              .zero_offset = 1},
             "Q4_0"},
        Case{{.packing = Packing::kGptq, .bits = 4, .group = 0, .zero_offset = 1}, "Q4_1"},
        Case{{.packing = Packing::kGptq, .bits = 4, .group = 32, .ordered = true, .zero_offset = 1},
             "F32"},
        Case{{.packing = Packing::kGptq, .bits = 8, .group = 128, .symmetric = true}, "Q8_0"},
        Case{{.packing = Packing::kGptq, .bits = 8, .group = 128}, "F32"},
        Case{{.packing = Packing::kPacked, .bits = 4, .group = 128, .symmetric = true}, "Q4_0"},
        Case{{.packing = Packing::kPacked, .bits = 4, .group = 32}, "Q4_1"},
        Case{{.packing = Packing::kPacked, .bits = 8, .group = 0, .symmetric = true}, "Q8_0"},
        Case{{.packing = Packing::kPacked, .bits = 4, .group = 32, .ordered = true}, "F32"}));

/// A matrix of FP8 with a scale for each block of outputs and inputs; 0: of all of them.
Stored stored_f8(std::int64_t columns, std::int64_t block_rows, std::int64_t block_columns) {
  constexpr std::int64_t kRows = 70;
  Rng rng(6);
  Stored stored;
  stored.matrix.how = {
      .packing = Packing::kScaled, .block_rows = block_rows, .block_columns = block_columns};
  stored.matrix.rows = kRows;
  stored.matrix.columns = columns;
  for (std::int64_t i = 0; i < kRows * columns; ++i) {
    stored.file += static_cast<char>(rng.below(127) | rng.below(2) << 7U);
  }
  stored.matrix.numbers.tensor = {.name = "weight",
                                  .type = StoredType::kF8E4M3,
                                  .shape = {kRows, columns},
                                  .bytes = stored.file.size()};
  const std::vector<std::int64_t> shape =
      block_rows > 0 ? std::vector{(kRows + block_rows - 1) / block_rows,
                                   (columns + block_columns - 1) / block_columns}
                     : std::vector{kRows, std::int64_t{1}};
  stored.matrix.scales.tensor = {.name = "weight_scale",
                                 .type = StoredType::kF32,
                                 .shape = shape,
                                 .offset = stored.file.size(),
                                 .bytes = static_cast<std::uint64_t>(shape[0] * shape[1]) * 4};
  for (std::int64_t i = 0; i < shape[0] * shape[1]; ++i) {
    const float scale = static_cast<float>(1 + rng.below(9999)) * 1e-5F;
    stored.file.append(reinterpret_cast<const char*>(&scale), sizeof(scale));
  }
  return stored;
}

/// The scale of an element, by the definition.
float f8_scale(const Stored& stored, std::int64_t row, std::int64_t column) {
  const spec::Quantisation& how = stored.matrix.how;
  const std::int64_t across = stored.matrix.scales.tensor.shape[1];
  const std::int64_t at =
      how.block_rows > 0 ? row / how.block_rows * across + column / how.block_columns : row;
  float scale = 0.0F;
  std::memcpy(
      &scale, stored.file.data() + stored.matrix.scales.tensor.offset + at * 4, sizeof(scale));
  return scale;
}

TEST(PackedMatrix, Fp8StaysWhatItIsWithItsScalesByRowAndByBlock) {
  for (const auto& [rows, columns] : {std::pair{0, 0}, std::pair{32, 128}, std::pair{128, 256}}) {
    const Stored stored = stored_f8(384, rows, columns);
    ASSERT_EQ(rows_type(stored.matrix), StoredType::kF8Scaled);
    EXPECT_EQ(stored_bytes(StoredType::kF8Scaled, 384), 3U * 132U);
    for (const auto& [first, count] : {std::pair{0, 70}, std::pair{31, 3}}) {
      const std::vector<float> values = stored.read(first, count);
      for (std::int64_t i = 0; i < count * 384; ++i) {
        const std::int64_t row = first + i / 384;
        const auto code =
            static_cast<std::uint8_t>(stored.file[static_cast<std::size_t>(row * 384 + i % 384)]);
        ASSERT_EQ(values[static_cast<std::size_t>(i)],
                  f8_scale(stored, row, i % 384) * spec::f32_of_e4m3(code))
            << "row " << row << ", column " << i % 384 << ", blocks of " << rows;
      }
    }
  }
}

TEST(PackedMatrix, Fp8IsDecodedWhereScalesAreOfNoWholeBlocks) {
  EXPECT_EQ(rows_type(stored_f8(384, 32, 64).matrix), StoredType::kF32);
  EXPECT_EQ(rows_type(stored_f8(320, 0, 0).matrix), StoredType::kF32);
  Stored whole_numbers = stored_f8(384, 0, 0);
  whole_numbers.matrix.numbers.tensor.type = StoredType::kI8;
  EXPECT_EQ(rows_type(whole_numbers.matrix), StoredType::kF32);
}

TEST(PackedMatrix, WhatIsNoNumberInFp8IsNamed) {
  Stored stored = stored_f8(256, 0, 0);
  stored.file[256 * 3 + 130] = '\xFF';
  Result<PackedRows> rows = PackedRows::open(stored.matrix, stored.reader());
  ASSERT_TRUE(rows) << rows.error().message;
  std::vector<std::byte> bytes(2 * stored_bytes(StoredType::kF8Scaled, 256));
  EXPECT_TRUE(rows->read(0, 2, stored.reader(), bytes));
  const Result<void> read = rows->read(2, 2, stored.reader(), bytes);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message, "tensor \"weight\": output 3, input 130 is not a number");
}

TEST(PackedMatrix, ScalesOfBlocksAreRoundedToFloat16) {
  Rng rng(9);
  const Quantisation how = {.packing = Packing::kPacked, .bits = 4, .group = 32, .symmetric = true};
  for (const float scale : {1.0F,
                            0.1F,
                            1.0F + 0x1p-11F,
                            1.0F + 0x3p-11F,
                            0x1p-14F,
                            0x1.8p-20F,
                            0x1p-25F,
                            3999.0F,
                            -0.37F,
                            0.0F}) {
    Stored stored(random_packed(how, 8, 32, rng));
    StoredTensor& scales = stored.matrix.scales.tensor;
    scales.type = StoredType::kF32;
    scales.offset = stored.file.size();
    scales.bytes = 32;
    for (int i = 0; i < 8; ++i) {
      stored.file.append(reinterpret_cast<const char*>(&scale), 4);
    }
    std::vector<std::byte> block(18);
    Result<PackedRows> rows = PackedRows::open(stored.matrix, stored.reader());
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_TRUE(rows->read(0, 1, stored.reader(), block));
    std::uint16_t half = 0;
    std::memcpy(&half, block.data(), 2);
    const float near = std::bit_cast<float>(f32_bits_of_f16(half));
    const auto at = [](std::uint16_t bits) { return std::bit_cast<float>(f32_bits_of_f16(bits)); };
    // No neighbour is nearer; of two that are as near, the even one is taken.
    for (const float other : {at(half + 1), half % 0x8000U == 0 ? near : at(half - 1)}) {
      EXPECT_LE(std::fabs(near - scale), std::fabs(other - scale)) << scale;
      EXPECT_TRUE(std::fabs(near - scale) < std::fabs(other - scale) || half % 2 == 0 ||
                  other == near)
          << scale;
    }
  }
}

TEST(PackedMatrix, WhatCannotBeIsNamed) {
  Rng rng(3);
  const Quantisation how = {
      .packing = Packing::kGptq, .bits = 4, .group = 32, .ordered = true, .zero_offset = 1};
  Stored stored(random_packed(how, 8, 64, rng));
  const std::string whole = stored.file;
  const std::int32_t group = 2;
  std::memcpy(stored.file.data() + stored.matrix.groups->tensor.offset + 12, &group, 4);
  Result<PackedRows> rows = PackedRows::open(stored.matrix, stored.reader());
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message,
              HasSubstr("tensor \"g_idx\": input 3 is of group 2, and there are 2"));

  stored.file = whole;
  const std::uint16_t infinite = 0x7C00;
  std::memcpy(stored.file.data() + stored.matrix.scales.tensor.offset + 2, &infinite, 2);
  rows = PackedRows::open(stored.matrix, stored.reader());
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message, HasSubstr("tensor \"scales\": scale 1 is inf; it must be"));
}

TEST(PackedMatrix, AFileThatCannotBeReadIsSaid) {
  Rng rng(4);
  const Stored stored(
      random_packed({.packing = Packing::kAwq, .bits = 4, .group = 32}, 8, 32, rng));
  const ReadPart none = [](std::size_t, std::uint64_t, std::span<std::byte>) -> Result<void> {
    return Error{Code::kUnavailable, "gone"};
  };
  EXPECT_EQ(PackedRows::open(stored.matrix, none).error().message, "gone");
}

}  // namespace
}  // namespace heddle::store
