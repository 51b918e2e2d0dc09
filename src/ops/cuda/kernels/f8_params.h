#pragma once

#include <cstddef>
#include <cstdint>

/// Of products with FP8 (E4M3) on both sides: what comes before the library's product of plain
/// bytes, and after it.
namespace heddle::ops::cuda {

/// The largest E4M3.
constexpr float kF8Largest = 448.0F;
/// A token whose numbers are all smaller counts as zero.
constexpr float kF8Least = 1e-30F;

/// Of heddle_f8_tokens, whose warps have a token each: it becomes E4M3, and what these are to be
/// multiplied with: its largest magnitude / 448, or NaN where that is not finite.
struct F8TokensParams {
  const std::byte* x = nullptr;  ///< bfloat16, rows at multiples of 16 bytes.
  std::int64_t x_stride = 0;     ///< In bytes.
  std::byte* out = nullptr;      ///< [tokens, inputs]
  float* scale = nullptr;        ///< [tokens]
  std::int32_t tokens = 0;
  std::int32_t inputs = 0;  ///< A multiple of 128.
};

/// Of heddle_f8_rows: the panels of a matrix, one for the blocks of each x, become rows of E4M3,
/// one behind the other, and a scale each: the first of the row's. Warps take turns at 32 inputs.
struct F8RowsParams {
  const std::byte* weight = nullptr;
  std::byte* out = nullptr;  ///< [whole panels of rows, inputs]
  float* scale = nullptr;    ///< [whole panels of rows]
  std::int32_t inputs = 0;   ///< A multiple of 128.
};

/// Of heddle_f8_scaled: out[t][o] = product[t][o] token_scale[t] row_scale[o] + bias[o] +
/// residual[t][o]. A thread has an output of kF8ScaledTokens tokens.
struct F8ScaledParams {
  const float* product = nullptr;
  std::int64_t product_stride = 0;
  const float* token_scale = nullptr;
  const float* row_scale = nullptr;
  const float* bias = nullptr;      ///< Or nullptr.
  const float* residual = nullptr;  ///< Or nullptr; may be `out`.
  std::int64_t residual_stride = 0;
  std::byte* out = nullptr;  ///< f32, or bf16 where `out_bf16`.
  std::int64_t out_stride = 0;
  std::int32_t tokens = 0;
  std::int32_t outputs = 0;
  bool out_bf16 = false;
};

constexpr std::uint32_t kF8Threads = 128;
constexpr std::int64_t kF8ScaledTokens = 8;

}  // namespace heddle::ops::cuda
