#pragma once

// For tests only: packed matrices, made one number at a time.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "spec/quantisation.h"
#include "store/test_files.h"

namespace heddle::store {

/// Codes, scales and zeros of a matrix, drawn.
struct TestPacked {
  spec::Quantisation how{};
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint32_t> codes{};   ///< By row.
  std::vector<std::uint16_t> scales{};  ///< float16, by row and group.
  std::vector<std::uint32_t> zeros{};
  std::vector<std::int32_t> group_of{};

  [[nodiscard]] std::int64_t group() const { return how.group > 0 ? how.group : columns; }
  [[nodiscard]] std::int64_t groups() const { return (columns + group() - 1) / group(); }
  [[nodiscard]] float value(std::int64_t row, std::int64_t column) const {
    const auto at =
        static_cast<std::size_t>(row * groups() + group_of[static_cast<std::size_t>(column)]);
    const std::uint32_t code = codes[static_cast<std::size_t>(row * columns + column)];
    return (static_cast<float>(code) - static_cast<float>(zeros[at])) *
           std::bit_cast<float>(f32_bits_of_f16(scales[at]));
  }
};

inline TestPacked random_packed(const spec::Quantisation& how,
                                std::int64_t rows,
                                std::int64_t columns,
                                Rng& rng) {
  TestPacked packed{.how = how, .rows = rows, .columns = columns};
  const std::uint64_t codes = std::uint64_t{1} << static_cast<unsigned>(how.bits);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    packed.codes.push_back(static_cast<std::uint32_t>(rng.below(codes)));
  }
  for (std::int64_t i = 0; i < rows * packed.groups(); ++i) {
    // Between 2^-7 and 2^-5, of any mantissa.
    packed.scales.push_back(static_cast<std::uint16_t>((8U << 10U) + rng.below(2048)));
    const bool middle = how.symmetric;
    packed.zeros.push_back(static_cast<std::uint32_t>(middle ? codes / 2 : rng.below(codes)));
  }
  for (std::int64_t i = 0; i < columns; ++i) {
    packed.group_of.push_back(static_cast<std::int32_t>(
        how.ordered ? rng.below(static_cast<std::uint64_t>(packed.groups()))
                    : static_cast<std::uint64_t>(i / packed.group())));
  }
  return packed;
}

inline std::string words_text(const std::vector<std::uint32_t>& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(std::uint32_t)};
}

/// The tensors that AWQ, GPTQ and compressed-tensors have of it, by their endings.
inline TestTensors tensors_of(const TestPacked& packed) {
  using spec::Packing;
  const bool awq = packed.how.packing == Packing::kAwq;
  const bool by_row = packed.how.packing == Packing::kPacked;
  const std::int64_t each = 32 / packed.how.bits;
  const std::int64_t rows = packed.rows;
  const std::int64_t columns = packed.columns;
  const std::int64_t groups = packed.groups();
  // AutoAWQ packs the outputs 0, 2, 4, 6, 1, 3, 5, 7 into the places 0 to 7 of a word.
  constexpr std::array<std::int64_t, 8> kOrder = {0, 2, 4, 6, 1, 3, 5, 7};
  const auto place = [&](std::int64_t within) {
    std::int64_t at = 0;
    while (awq && kOrder[static_cast<std::size_t>(at)] != within) {
      ++at;
    }
    return static_cast<unsigned>(packed.how.bits * (awq ? at : within));
  };
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(rows * columns / each));
  std::vector<std::uint32_t> zeros(static_cast<std::size_t>((rows + each - 1) / each * groups));
  std::string scales;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t column = 0; column < columns; ++column) {
      const std::uint32_t code = packed.codes[static_cast<std::size_t>(row * columns + column)];
      const std::int64_t along = awq ? row : column;
      const std::int64_t word = awq      ? column * (rows / each) + row / each
                                : by_row ? row * (columns / each) + column / each
                                         : column / each * rows + row;
      numbers[static_cast<std::size_t>(word)] |= code << place(along % each);
    }
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::uint32_t mask = (1U << static_cast<unsigned>(packed.how.bits)) - 1;
      const std::uint32_t zero = (packed.zeros[static_cast<std::size_t>(row * groups + group)] -
                                  static_cast<std::uint32_t>(packed.how.zero_offset)) &
                                 mask;
      const std::int64_t word =
          by_row ? row / each * groups + group : group * (rows / each) + row / each;
      zeros[static_cast<std::size_t>(word)] |= zero << place(row % each);
    }
  }
  for (std::int64_t i = 0; i < rows * groups; ++i) {
    const std::int64_t at = by_row ? i : i % rows * groups + i / rows;
    const std::uint16_t scale = packed.scales[static_cast<std::size_t>(at)];
    scales += static_cast<char>(scale & 255U);
    scales += static_cast<char>(scale >> 8U);
  }
  std::string order{reinterpret_cast<const char*>(packed.group_of.data()),
                    packed.group_of.size() * sizeof(std::int32_t)};
  const auto i32 = [](std::vector<std::int64_t> shape, std::string data) {
    return TestTensor{.type = StoredType::kI32, .shape = std::move(shape), .data = std::move(data)};
  };
  TestTensors made;
  const std::string prefix = by_row ? "weight_" : "";
  made[by_row ? "weight_packed" : "qweight"] = i32(awq      ? std::vector{columns, rows / each}
                                                   : by_row ? std::vector{rows, columns / each}
                                                            : std::vector{columns / each, rows},
                                                   words_text(numbers));
  made[by_row ? "weight_scale" : "scales"] = {
      .type = StoredType::kF16,
      .shape = by_row ? std::vector{rows, groups} : std::vector{groups, rows},
      .data = scales};
  if (!by_row || !packed.how.symmetric) {
    made[by_row ? "weight_zero_point" : "qzeros"] = i32(
        by_row ? std::vector{(rows + each - 1) / each, groups} : std::vector{groups, rows / each},
        words_text(zeros));
  }
  if (!awq && (packed.how.ordered || !by_row)) {
    made[prefix + "g_idx"] = i32({columns}, std::move(order));
  }
  return made;
}

}  // namespace heddle::store
