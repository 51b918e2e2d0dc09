#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// Matrices of FP8 (E4M3) numbers with scales, as blocks: a row has for each 128 inputs their
/// scale, float32, and then a byte each. So scales by matrix, by row or by blocks of 128 inputs, or
/// of a multiple, are kept exactly. In an image rows lie in panels of sixteen, as block_panels.h
/// has it:
///
///     panel    for each 128 inputs: scales {quants} x 4
///     scales   float32 by row
///     quants   of 32 inputs: byte 64 g + 4 r + i has input 4 g + i of row r
namespace heddle::spec {

/// Inputs of a block, and its bytes.
inline constexpr std::int64_t kF8Inputs = 128;
inline constexpr std::int64_t kF8Bytes = 4 + kF8Inputs;

/// The value of an E4M3 as NVIDIA has it: no infinities, and a NaN of either sign.
[[nodiscard]] float f32_of_e4m3(std::uint8_t bits);

/// As spec::interleave_rows() of DType::kF8.
void interleave_f8_rows(std::span<const std::byte* const> rows,
                        std::int64_t columns,
                        std::byte* panel);

/// As spec::read_panel_row() of DType::kF8: each number times its scale, rounded once.
void read_f8_row(const std::byte* panel, std::int64_t row, std::int64_t columns, float* numbers);

}  // namespace heddle::spec
