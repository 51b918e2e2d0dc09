#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernels/rms_norm_params.h"

namespace heddle::ops::cuda {

/// Of a thin kernel: what the last of its blocks does when all outputs are there.
struct ThenNorm {
  std::int32_t* counter = nullptr;  ///< Of blocks (last_block.cuh); nullptr: there is none to do.
  std::int32_t threads = 0;         ///< Of the block, that have a share.
  RmsNormParams params{};           ///< Of `tokens` vectors of as many columns as outputs.
};

/// Of the own kernels of a product out = x weight^T, linear.h. Strides count bytes of `x` and
/// elements of the others.
struct LinearParams {
  /// [tokens], `x_stride` apart, and for int8 the upper and the lower halves of 16-bit numbers,
  /// rows padded with zeros to a multiple of kInt8Pad.
  const std::byte* x = nullptr;
  const std::byte* x_low = nullptr;
  std::int64_t x_stride = 0;
  const std::byte* weight = nullptr;  ///< [outputs, inputs]
  const float* scale = nullptr;       ///< [outputs], for int8.
  /// [tokens], for int8: its numbers are multiples of 2^this; kNotFinite where some is no number.
  const std::int32_t* exponent = nullptr;
  const float* bias = nullptr;      ///< [outputs], or nullptr.
  const float* residual = nullptr;  ///< [tokens], `residual_stride` apart, or nullptr.
  std::int64_t residual_stride = 0;
  void* out = nullptr;  ///< float or, if `out_bf16`, bfloat16; [tokens], `out_stride` apart.
  std::int64_t out_stride = 0;
  std::int32_t tokens = 0;
  std::int32_t outputs = 0;
  std::int32_t inputs = 0;
  /// Whether all rows of `weight` (and of a bfloat16 `x`) begin at multiples of 16 bytes.
  bool aligned = false;
  bool out_bf16 = false;
  /// On tensor cores: outputs are gates and as many ups, and silu(gate) up is stored of each pair.
  bool gated = false;
  ThenNorm norm{};
};

/// Of heddle_split_tokens: one block per token of x rounds its numbers to 16 bits and splits them.
struct SplitTokensParams {
  const std::byte* x = nullptr;  ///< bf16 [tokens], `x_stride` bytes apart.
  std::int64_t x_stride = 0;
  std::byte* high = nullptr;  ///< int8 [tokens], `pitch` apart: floor(number / 256).
  std::byte* low = nullptr;   ///< uint8 [tokens], `pitch` apart: number modulo 256.
  std::int64_t pitch = 0;     ///< At least `inputs`; what is beyond is filled with zeros.
  std::int32_t* exponent = nullptr;
  std::int32_t inputs = 0;
};

/// LinearParams::exponent of a token with a number that is not finite.
constexpr std::int32_t kNotFinite = -0x7fffffff - 1;
/// What rows of split tokens are padded to, in bytes: what the thin kernel takes in one step.
constexpr std::int64_t kInt8Pad = 128;
/// Up to so many inputs no sum of 32 bits overflows: 128 * 255 * inputs < 2^31.
constexpr std::int64_t kInt8InputsMax = 65792;

constexpr std::uint32_t kSplitThreads = 256;

/// The thin kernels, for few tokens: a block has kThinOutputs outputs of all tokens, its warps take
/// turns at the inputs.
constexpr std::uint32_t kThinOutputs = 16;
constexpr std::uint32_t kThinThreads = 256;
/// Those for float32: a warp has an output.
constexpr std::uint32_t kThinF32Outputs = 8;
constexpr std::uint32_t kThinF32Threads = 32 * kThinF32Outputs;
constexpr std::int64_t kThinF32Tokens = 8;

/// The tile kernels, for many: a block has a tile of outputs and tokens.
constexpr std::uint32_t kTileOutputs = 128;
constexpr std::uint32_t kTileTokens = 64;
constexpr std::uint32_t kTileThreads = 256;
constexpr std::uint32_t kTileF32Outputs = 64;
constexpr std::uint32_t kTileF32Tokens = 64;

}  // namespace heddle::ops::cuda
