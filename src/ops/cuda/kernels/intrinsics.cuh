#pragma once

#include <cstddef>
#include <cstdint>

/// What kernels need of the device beside CUDA's own language: one definition here for nvcc, one of
/// the same names and meanings for the emulated driver (tests/cuda_emulator/shim), so that the
/// kernels' text is the same. Kernels also use, of CUDA: threadIdx, blockIdx, blockDim, gridDim,
/// __shared__ (static arrays), __syncthreads(), __threadfence(), __threadfence_system(),
/// __restrict__, float2, float4,
/// uint2, uint4, min, max, atomicAdd, atomicMax, atomicMin, atomicCAS, atomicExch, and the
/// functions of math.h.
///
/// All 32 lanes of a warp call what is of the warp, so that blocks are multiples of 32 threads.

/// Opens the definition of a kernel: `name`, called `heddle_...`, takes one struct, by value, known
/// as `params`; no launch has blocks of more than `threads_max` threads. It begins when the kernels
/// before it in the stream have ended, but comes to the multiprocessors before.
#define HEDDLE_KERNEL(name, Params, threads_max) HEDDLE_KERNEL_BLOCKS(name, Params, threads_max, 1)
/// The same with registers for so many blocks at least on a multiprocessor.
#define HEDDLE_KERNEL_BLOCKS(name, Params, threads_max, blocks_min)   \
  __device__ __forceinline__ void name##_begun(const Params& params); \
  HEDDLE_KERNEL_EARLY(name, Params, threads_max, blocks_min) {        \
    ::heddle::ops::cuda::wait_for_kernels();                          \
    name##_begun(params);                                             \
  }                                                                   \
  __device__ __forceinline__ void name##_begun(const Params& params)
/// The same for one that begins early: all of its threads call wait_for_kernels() before they read
/// or write what kernels before it write or read.
#define HEDDLE_KERNEL_EARLY(name, Params, threads_max, blocks_min)      \
  __device__ __forceinline__ void name##_early(const Params& params);   \
  extern "C" __global__ void __launch_bounds__(threads_max, blocks_min) \
      name(const __grid_constant__ Params params) {                     \
    ::heddle::ops::cuda::let_next_kernel_come();                        \
    name##_early(params);                                               \
  }                                                                     \
  __device__ __forceinline__ void name##_early(const Params& params)

/// Declares `name`, a std::byte* to the block's dynamic shared memory, aligned to 16.
#define HEDDLE_DYNAMIC_SHARED(name)                \
  extern __shared__ uint4 heddle_dynamic_shared[]; \
  std::byte* const name = reinterpret_cast<std::byte*>(heddle_dynamic_shared)

namespace heddle::ops::cuda {

constexpr unsigned kWarpThreads = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

/// The next kernel of the stream may come to multiprocessors that have room, where its launch
/// allows; it waits there for this one to end.
__device__ __forceinline__ void let_next_kernel_come() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Returns when the kernels before this one in the stream have ended and all sees what they wrote.
__device__ __forceinline__ void wait_for_kernels() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// Lets a thread that waits for memory to change rest a little.
__device__ __forceinline__ void pause_waiting() {
  __nanosleep(20);
}

/// The lane's number in its warp, where blocks are one-dimensional.
__device__ __forceinline__ unsigned lane_index() {
  return threadIdx.x % kWarpThreads;
}

// Of the warp. T is a type of 4 or 8 bytes.

/// The value that the lane gave whose number is `source`; or this lane's number ^ `mask`.
template <class T>
__device__ __forceinline__ T shuffle(T value, unsigned source) {
  return __shfl_sync(kAllLanes, value, static_cast<int>(source));
}
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, unsigned mask) {
  return __shfl_xor_sync(kAllLanes, value, static_cast<int>(mask));
}
/// The value of the lane `delta` before this one; its own for the first `delta` lanes.
template <class T>
__device__ __forceinline__ T shuffle_up(T value, unsigned delta) {
  return __shfl_up_sync(kAllLanes, value, delta);
}
/// Bit i: what lane i gave.
__device__ __forceinline__ unsigned warp_ballot(bool vote) {
  return __ballot_sync(kAllLanes, vote);
}
/// The number of the lowest bit that is set; there must be one.
__device__ __forceinline__ unsigned lowest_bit(unsigned bits) {
  return static_cast<unsigned>(__ffs(static_cast<int>(bits))) - 1;
}
/// How many bits are set.
__device__ __forceinline__ int count_bits(unsigned bits) {
  return __popc(bits);
}
/// Makes the warp's writes to memory before it visible to its lanes after it.
__device__ __forceinline__ void sync_warp() {
  __syncwarp();
}

// Numbers.

__device__ __forceinline__ std::uint32_t float_bits(float value) {
  return __float_as_uint(value);
}
__device__ __forceinline__ float bits_float(std::uint32_t bits) {
  return __uint_as_float(bits);
}
/// 2^x to about 2 ulp; results below the smallest normal number become 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// 1 / x to 1 ulp; 0 of infinity.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// Two floats as bfloat16 (nearest, ties to even; NaN stays NaN), `low` in the low half.
__device__ __forceinline__ std::uint32_t to_bf16_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>(to_bf16_pair(value, 0.0F));
}

// Tensor cores.

/// d += a b for a [16, 16] and b [16, 8] in bfloat16, d in float32. With g = lane / 4 and
/// t = lane % 4, a lane holds
///     a: rows g and g + 8 by turns, of columns (2t, 2t + 1), then of columns (2t + 8, 2t + 9)
///     b: rows (2t, 2t + 1), then (2t + 8, 2t + 9), of column g
///     d: columns (2t, 2t + 1) of row g, then of row g + 8
__device__ __forceinline__ void mma_bf16(float (&d)[4],
                                         const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Loads four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + r gives the address
/// of row r of matrix i (8 elements, 16-aligned); part i of the result is, of matrix i, elements
/// (2t, 2t + 1) of row g, or with `_transposed` elements (2t, 2t + 1) of column g.
__device__ __forceinline__ void load_matrices(std::uint32_t (&parts)[4], const std::byte* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&parts)[4],
                                                         const std::byte* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(parts[0]), "=r"(parts[1]), "=r"(parts[2]), "=r"(parts[3])
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(row)))
               : "memory");
}

// Copies from global to shared memory beside the running thread.

/// Begins to copy 16 bytes, both sides 16-aligned; where not `valid`, writes zeros and reads
/// nothing. `source` must be an address even then.
__device__ __forceinline__ void copy_async(std::byte* target, const std::byte* source, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(target))),
                 "l"(__cvta_generic_to_global(source)),
                 "r"(valid ? 16U : 0U)
               : "memory");
}
/// Makes a group of the copies begun since the last.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all of this thread's groups but the kLeft newest have arrived. Other threads see
/// them after a barrier.
template <int kLeft>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

}  // namespace heddle::ops::cuda
