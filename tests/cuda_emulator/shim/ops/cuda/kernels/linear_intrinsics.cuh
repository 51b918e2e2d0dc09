#pragma once

// Stands in for src/ops/cuda/kernels/linear_intrinsics.cuh, which says what each of these does.

#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

inline float multiply_rounded(float a, float b) {
  return a * b;
}

/// Factor: what the elements of `b` are.
template <class Factor>
void mma_bytes(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  struct Fragments {
    std::int8_t a[4][4];
    Factor b[2][4];
  };
  Fragments own;
  std::memcpy(own.a, a, sizeof(own.a));
  std::memcpy(own.b, b, sizeof(own.b));
  const auto all = ::emulator::exchange(own);
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  for (unsigned k = 0; k < 32; ++k) {
    // Element k of a row of `a`, or of a column of `b`, is with lane k % 16 / 4 of a group of four.
    const Fragments& of_row = all[g * 4 + k % 16 / 4];
    for (unsigned j = 0; j < 2; ++j) {
      const int factor = all[(2 * t + j) * 4 + k % 16 / 4].b[k / 16][k % 4];
      d[j] += of_row.a[k / 16 * 2][k % 4] * factor;
      d[2 + j] += of_row.a[k / 16 * 2 + 1][k % 4] * factor;
    }
  }
}
inline void mma_int8(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_bytes<std::int8_t>(d, a, b);
}
inline void mma_int8_uint8(int (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  mma_bytes<std::uint8_t>(d, a, b);
}

}  // namespace heddle::ops::cuda
