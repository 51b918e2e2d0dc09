#pragma once

// The emulated driver's meaning of CUDA's language and of src/ops/cuda/kernels/intrinsics.cuh,
// which this file stands in for and which says what each of these does.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>

#include "cuda_emulator/thread_api.h"

// NOLINTBEGIN(bugprone-reserved-identifier): CUDA's names.
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __align__(bytes) alignas(bytes)
#define __constant__ static const
/// One block runs at a time; the section is filled with NaN before each.
#define __shared__ static __attribute__((section("heddle_shared")))
#define threadIdx (::emulator::thread_index())
#define blockIdx (::emulator::block_index())
#define blockDim (::emulator::block_dim())
#define gridDim (::emulator::grid_dim())

inline void __syncthreads() {
  ::emulator::sync_block();
}
inline void __threadfence() {}
inline void __threadfence_system() {}
// NOLINTEND(bugprone-reserved-identifier)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
  return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
  return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}

using std::max;
using std::min;

template <class T>
T atomicAdd(T* target, T value) {
  const T before = *target;
  *target = before + value;
  return before;
}
template <class T>
T atomicMax(T* target, T value) {
  const T before = *target;
  *target = before < value ? value : before;
  return before;
}
template <class T>
T atomicMin(T* target, T value) {
  const T before = *target;
  *target = value < before ? value : before;
  return before;
}
template <class T>
T atomicCAS(T* target, T expected, T value) {
  const T before = *target;
  *target = before == expected ? value : before;
  return before;
}
template <class T>
T atomicExch(T* target, T value) {
  const T before = *target;
  *target = value;
  return before;
}

/// The symbol `name` takes the address of the struct, which is all that emulator::run knows of it.
#define HEDDLE_KERNEL(name, Params, threads_max) HEDDLE_KERNEL_BLOCKS(name, Params, threads_max, 1)
#define HEDDLE_KERNEL_BLOCKS(name, Params, threads_max, blocks_min) \
  static void name##_begun(const Params& params);                   \
  HEDDLE_KERNEL_EARLY(name, Params, threads_max, blocks_min) {      \
    ::heddle::ops::cuda::wait_for_kernels();                        \
    name##_begun(params);                                           \
  }                                                                 \
  static void name##_begun(const Params& params)
#define HEDDLE_KERNEL_EARLY(name, Params, threads_max, blocks_min)                  \
  static void name##_body(const Params& params);                                    \
  extern "C" __attribute__((visibility("default"))) void name(const void* params) { \
    if (blockDim.x * blockDim.y * blockDim.z > (threads_max)) {                     \
      ::emulator::fail("more threads than the kernel was made for");                \
    }                                                                               \
    ::heddle::ops::cuda::has_waited() = false;                                      \
    name##_body(*static_cast<const Params*>(params));                               \
    if (!::heddle::ops::cuda::has_waited()) {                                       \
      ::emulator::fail("a thread did not wait for the kernels before");             \
    }                                                                               \
  }                                                                                 \
  static void name##_body(const Params& params)

#define HEDDLE_DYNAMIC_SHARED(name) std::byte* const name = ::emulator::dynamic_shared()

namespace heddle::ops::cuda {

constexpr unsigned kWarpThreads = 32;

/// Whether the thread has waited for the kernels before this one, which are over all the same.
inline bool& has_waited() {
  static bool waited[::emulator::kBlockThreadsMax] = {};
  const ::emulator::Dim& at = threadIdx;
  return waited[at.x + blockDim.x * (at.y + blockDim.y * at.z)];
}
inline void wait_for_kernels() {
  has_waited() = true;
}

/// Who is waited for runs in another process.
inline void pause_waiting() {
  std::this_thread::yield();
}

inline unsigned lane_index() {
  return ::emulator::lane();
}

template <class T>
T shuffle(T value, unsigned source) {
  return ::emulator::exchange_for(value, source % kWarpThreads);
}
template <class T>
T shuffle_xor(T value, unsigned mask) {
  return ::emulator::exchange_for(value, (lane_index() ^ mask) % kWarpThreads);
}
template <class T>
T shuffle_up(T value, unsigned delta) {
  const unsigned lane = lane_index();
  return ::emulator::exchange_for(value, lane < delta ? lane : lane - delta);
}
inline unsigned warp_ballot(bool vote) {
  const auto& votes = ::emulator::exchange(&vote, sizeof(vote));
  unsigned bits = 0;
  for (unsigned i = 0; i < kWarpThreads; ++i) {
    bits |= std::to_integer<unsigned>(votes[i][0]) << i;
  }
  return bits;
}
inline unsigned lowest_bit(unsigned bits) {
  return static_cast<unsigned>(std::countr_zero(bits));
}
inline int count_bits(unsigned bits) {
  return std::popcount(bits);
}
inline void sync_warp() {
  const std::byte nothing{};
  ::emulator::exchange(&nothing, sizeof(nothing));
}

inline std::uint32_t float_bits(float value) {
  return std::bit_cast<std::uint32_t>(value);
}
inline float bits_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline float exp2_fast(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126F ? 0.0F : y;
}
inline float reciprocal_fast(float x) {
  return 1.0F / x;
}
inline std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = float_bits(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) {
    return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}
inline std::uint32_t to_bf16_pair(float low, float high) {
  return to_bf16(low) | (static_cast<std::uint32_t>(to_bf16(high)) << 16U);
}

inline void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
  struct Fragments {
    std::uint32_t a[4];
    std::uint32_t b[2];
  };
  Fragments own;
  std::memcpy(own.a, a, sizeof(own.a));
  std::memcpy(own.b, b, sizeof(own.b));
  const auto& slots = ::emulator::exchange(&own, sizeof(own));
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  const auto half = [](std::uint32_t pair, unsigned high) {
    return bits_float(high != 0 ? pair & 0xffff0000U : pair << 16U);
  };
  for (unsigned k = 0; k < 16; ++k) {
    // Element k of a row of `a`, or of a column of `b`, is with lane k % 8 / 2 of a group of four.
    Fragments of_row;
    std::memcpy(&of_row, slots[g * 4 + k % 8 / 2].data(), sizeof(of_row));
    for (unsigned j = 0; j < 2; ++j) {
      Fragments of_column;
      std::memcpy(&of_column, slots[(2 * t + j) * 4 + k % 8 / 2].data(), sizeof(of_column));
      const float factor = half(of_column.b[k / 8], k % 2);
      d[j] += half(of_row.a[k / 8 * 2], k % 2) * factor;
      d[2 + j] += half(of_row.a[k / 8 * 2 + 1], k % 2) * factor;
    }
  }
}

inline void load_matrices(std::uint32_t (&parts)[4], const std::byte* row) {
  const auto& rows = ::emulator::exchange(&row, sizeof(row));
  for (unsigned i = 0; i < 4; ++i) {
    const std::byte* from;
    std::memcpy(&from, rows[i * 8 + lane_index() / 4].data(), sizeof(from));
    std::memcpy(&parts[i], from + lane_index() % 4 * 4, 4);
  }
}
inline void load_matrices_transposed(std::uint32_t (&parts)[4], const std::byte* row) {
  const auto& rows = ::emulator::exchange(&row, sizeof(row));
  for (unsigned i = 0; i < 4; ++i) {
    std::uint16_t pair[2];
    for (unsigned j = 0; j < 2; ++j) {
      const std::byte* from;
      std::memcpy(&from, rows[i * 8 + lane_index() % 4 * 2 + j].data(), sizeof(from));
      std::memcpy(&pair[j], from + lane_index() / 4 * 2, 2);
    }
    parts[i] = pair[0] | (static_cast<std::uint32_t>(pair[1]) << 16U);
  }
}

inline void copy_async(std::byte* target, const std::byte* source, bool valid) {
  const auto misaligned =
      std::bit_cast<std::uintptr_t>(target) | std::bit_cast<std::uintptr_t>(source);
  if (misaligned % 16 != 0) {
    ::emulator::fail("a misaligned copy_async");
  }
  ::emulator::copy_async_16(target, source, valid ? 16 : 0);
}
inline void copy_async_commit() {
  ::emulator::commit_copies();
}
template <int kLeft>
void copy_async_wait() {
  ::emulator::wait_copies(kLeft);
}

}  // namespace heddle::ops::cuda
