#pragma once

#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/linear_intrinsics.cuh"
#include "ops/cuda/kernels/linear_params.h"

/// What products on tensor cores with bfloat16 and with int8 weights differ in. A fragment of a
/// step is as many bytes for both: the kernels count inputs in bytes.
namespace heddle::ops::cuda {

/// x is one matrix of bfloat16, sums are float.
struct Bf16Kind {
  using Sum = float;
  using Total = float;
  using Element = std::uint16_t;
  static constexpr int kParts = 1;

  __device__ static void multiply(Sum (&sums)[kParts][4],
                                  const std::uint32_t (&a)[4],
                                  const std::uint32_t (&b)[kParts][2]) {
    mma_bf16(sums[0], a, b[0]);
  }
  __device__ static Total total(Sum sum) { return sum; }
  __device__ static float value(const LinearParams&, int, int, Total total) { return total; }
};

/// x is two matrices, of the halves of its 16-bit numbers; sums are exact.
struct Int8Kind {
  using Sum = int;
  using Total = long long;
  using Element = std::uint8_t;
  static constexpr int kParts = 2;

  __device__ static void multiply(Sum (&sums)[kParts][4],
                                  const std::uint32_t (&a)[4],
                                  const std::uint32_t (&b)[kParts][2]) {
    mma_int8(sums[0], a, b[0]);
    mma_int8_uint8(sums[1], a, b[1]);
  }
  __device__ static Total total(Sum high, Sum low) {
    return static_cast<Total>(high) * 256 + static_cast<Total>(low);
  }
  __device__ static float value(const LinearParams& params, int token, int output, Total total) {
    const int exponent = params.exponent[token];
    if (exponent == kNotFinite) {
      return bits_float(0x7fc00000U);
    }
    return multiply_rounded(ldexpf(static_cast<float>(total), exponent), params.scale[output]);
  }
};

/// The whole of element [4 i + j] of the sums' parts.
template <class Kind>
__device__ typename Kind::Total total_of(const typename Kind::Sum (&sums)[Kind::kParts][4], int i) {
  if constexpr (Kind::kParts == 1) {
    return Kind::total(sums[0][i]);
  } else {
    return Kind::total(sums[0][i], sums[1][i]);
  }
}

/// Stores a result as it is.
__device__ inline void store_result(const LinearParams& params,
                                    int token,
                                    int output,
                                    float value) {
  const std::int64_t at = token * params.out_stride + output;
  if (params.out_bf16) {
    static_cast<std::uint16_t*>(params.out)[at] = to_bf16(value);
  } else {
    static_cast<float*>(params.out)[at] = value;
  }
}

/// Adds to `value` what belongs to it and stores it.
__device__ inline void store_output(const LinearParams& params,
                                    int token,
                                    int output,
                                    float value) {
  if (params.bias != nullptr) {
    value += params.bias[output];
  }
  if (params.residual != nullptr) {
    value += params.residual[token * params.residual_stride + output];
  }
  store_result(params, token, output, value);
}

/// 16 bytes of a row of `bytes`, from byte `at` on, wherever it lies; zeros beyond its end.
template <class Element>
__device__ uint4 gather(const std::byte* row, std::int64_t at, std::int64_t bytes) {
  constexpr int kPerWord = 4 / static_cast<int>(sizeof(Element));
  std::uint32_t words[4] = {};
  for (int i = 0; i < 4 * kPerWord; ++i) {
    const std::int64_t from = at + i * static_cast<int>(sizeof(Element));
    if (from < bytes) {
      const std::uint32_t element = *reinterpret_cast<const Element*>(row + from);
      words[i / kPerWord] |= element << (i % kPerWord * (32 / kPerWord));
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

}  // namespace heddle::ops::cuda
