#pragma once

// Stands in for src/ops/cuda/kernels/panel_intrinsics.cuh, which says what each of these does.

#include "base/half.h"
#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

inline std::uint32_t select_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selector) {
  const std::uint64_t bytes = a | std::uint64_t{b} << 32U;
  std::uint32_t selected = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned place = selector >> (4 * i) & 7U;
    selected |= static_cast<std::uint32_t>(bytes >> (8 * place) & 0xffU) << (8 * i);
  }
  return selected;
}

inline std::uint32_t subtract_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  const float low = bits_float(a << 16U) - bits_float(b << 16U);
  const float high = bits_float(a & 0xffff0000U) - bits_float(b & 0xffff0000U);
  return to_bf16_pair(low, high);
}

inline std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  const float low = bits_float(a << 16U) * bits_float(b << 16U);
  const float high = bits_float(a & 0xffff0000U) * bits_float(b & 0xffff0000U);
  return to_bf16_pair(low, high);
}

inline float from_f16(std::uint16_t bits) {
  return bits_float(f32_bits_of_f16(bits));
}

}  // namespace heddle::ops::cuda
