#include "cuda_emulator/threads.h"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "ops/cuda/kernels/intrinsics.cuh"
#include "ops/cuda/kernels/warp.cuh"

#include <sys/mman.h>

namespace {

using namespace heddle::ops::cuda;  // NOLINT(google-build-using-namespace): kernels, as they are
                                    // written.

struct Params {
  std::int32_t* out;
  const float* in;
  std::int32_t n;
};

template <class P>
bool launch(void (*entry)(const void*),
            emulator::Dim grid,
            emulator::Dim block,
            const P& params,
            std::size_t shared_bytes = 0) {
  return emulator::run(
      reinterpret_cast<void*>(entry), grid, block, shared_bytes, &params, sizeof(params));
}

HEDDLE_KERNEL(heddle_test_indices, Params, 64) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  atomicAdd(&params.out[block * blockDim.x * blockDim.y * blockDim.z + thread], 1);
}

TEST(Threads, EachThreadOfEachBlockRunsOnce) {
  std::vector<std::int32_t> out(2 * 3 * 2 * 48);
  ASSERT_TRUE(launch(heddle_test_indices, {2, 3, 2}, {4, 6, 2}, Params{out.data(), nullptr, 0}));
  EXPECT_EQ(out, std::vector<std::int32_t>(out.size(), 1));
}

// Reverses `n` numbers through shared memory. What each thread reads, another has written.
template <bool kSync>
void reverse(const Params& params) {
  __shared__ std::int32_t turned[256];
  turned[static_cast<unsigned>(params.n) - 1 - threadIdx.x] =
      static_cast<std::int32_t>(threadIdx.x);
  if constexpr (kSync) {
    __syncthreads();
  }
  params.out[threadIdx.x] = turned[threadIdx.x];
}
HEDDLE_KERNEL(heddle_test_reverse, Params, 256) {
  reverse<true>(params);
}
HEDDLE_KERNEL(heddle_test_reverse_unsynchronised, Params, 256) {
  reverse<false>(params);
}

TEST(Threads, ABarrierOrdersSharedMemory) {
  std::vector<std::int32_t> out(200);
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(launch(heddle_test_reverse, {}, {200}, Params{out.data(), nullptr, 200}));
    for (std::int32_t at = 0; at < 200; ++at) {
      ASSERT_EQ(out[static_cast<std::size_t>(at)], 199 - at);
    }
  }
}

TEST(Threads, AMissingBarrierShows) {
  std::vector<std::int32_t> out(200);
  ASSERT_TRUE(
      launch(heddle_test_reverse_unsynchronised, {}, {200}, Params{out.data(), nullptr, 200}));
  int wrong = 0;
  for (std::int32_t at = 0; at < 200; ++at) {
    wrong += out[static_cast<std::size_t>(at)] == 199 - at ? 0 : 1;
  }
  EXPECT_GT(wrong, 0);
}

// Each thread takes over from the one before it: right if threads happen to run in order.
HEDDLE_KERNEL(heddle_test_in_order, Params, 256) {
  __shared__ std::int32_t sums[256];
  sums[threadIdx.x] = threadIdx.x == 0 ? 0 : sums[threadIdx.x - 1] + 1;
  params.out[threadIdx.x] = sums[threadIdx.x];
}

TEST(Threads, WhatCountsOnTheOrderOfThreadsIsWrongInSome) {
  int wrong = 0;
  for (int i = 0; i < 8; ++i) {
    std::vector<std::int32_t> out(256);
    ASSERT_TRUE(launch(heddle_test_in_order, {}, {256}, Params{out.data(), nullptr, 256}));
    wrong += out[255] == 255 ? 0 : 1;
  }
  EXPECT_GT(wrong, 0);
}

HEDDLE_KERNEL(heddle_test_fresh_shared, Params, 32) {
  __shared__ float value[32];
  HEDDLE_DYNAMIC_SHARED(dynamic);
  const bool fresh =
      std::isnan(value[threadIdx.x]) && std::isnan(reinterpret_cast<float*>(dynamic)[threadIdx.x]);
  value[threadIdx.x] = 1.0F;
  reinterpret_cast<float*>(dynamic)[threadIdx.x] = 1.0F;
  params.out[blockIdx.x * 32 + threadIdx.x] = fresh ? 1 : 0;
}

TEST(Threads, ABlockFindsNothingOfTheLastInSharedMemory) {
  std::vector<std::int32_t> out(96);
  ASSERT_TRUE(launch(
      heddle_test_fresh_shared, {3}, {32}, Params{out.data(), nullptr, 0}, 32 * sizeof(float)));
  EXPECT_EQ(out, std::vector<std::int32_t>(96, 1));
}

HEDDLE_KERNEL(heddle_test_dynamic_shared, Params, 64) {
  HEDDLE_DYNAMIC_SHARED(memory);
  auto* values = reinterpret_cast<std::int32_t*>(memory);
  values[threadIdx.x] = static_cast<std::int32_t>(threadIdx.x);
  __syncthreads();
  params.out[threadIdx.x] = values[static_cast<unsigned>(params.n) - threadIdx.x];
}

TEST(Threads, DynamicSharedMemoryEndsWhereItWasAskedTo) {
  std::vector<std::int32_t> out(64);
  EXPECT_TRUE(
      launch(heddle_test_dynamic_shared, {}, {64}, Params{out.data(), nullptr, 63}, 64 * 4));
  EXPECT_EQ(out[0], 63);
  EXPECT_FALSE(
      launch(heddle_test_dynamic_shared, {}, {64}, Params{out.data(), nullptr, 64}, 64 * 4));
  EXPECT_EQ(std::string(emulator::last_failure()), "an illegal address");
  EXPECT_FALSE(launch(heddle_test_indices, {}, {64}, Params{}, emulator::kSharedBytesMax + 1));
}

struct WarpParams {
  float* sums;
  std::uint64_t* others;
  unsigned* ballots;
};
HEDDLE_KERNEL(heddle_test_warp, WarpParams, 128) {
  __shared__ float partial[kBlockWarpsMax];
  const auto value = static_cast<float>(threadIdx.x);
  params.sums[threadIdx.x] = block_sum(value, partial);
  params.others[threadIdx.x] = shuffle(std::uint64_t{threadIdx.x} << 40U, 3U) +
                               shuffle_up(static_cast<std::uint64_t>(threadIdx.x), 1U);
  params.ballots[threadIdx.x] = warp_ballot(threadIdx.x % 3 == 0);
}

TEST(Threads, LanesSeeWhatOthersGave) {
  std::vector<float> sums(128);
  std::vector<std::uint64_t> others(128);
  std::vector<unsigned> ballots(128);
  ASSERT_TRUE(
      launch(heddle_test_warp, {}, {128}, WarpParams{sums.data(), others.data(), ballots.data()}));
  for (unsigned i = 0; i < 128; ++i) {
    EXPECT_EQ(sums[i], 127.0F * 64.0F);
    const std::uint64_t before = i % 32 == 0 ? i : i - 1;
    EXPECT_EQ(others[i], (std::uint64_t{i / 32 * 32 + 3} << 40U) + before);
    for (unsigned j = 0; j < 32; ++j) {
      EXPECT_EQ((ballots[i] >> j) & 1U, (i / 32 * 32 + j) % 3 == 0 ? 1U : 0U);
    }
  }
}

HEDDLE_KERNEL(heddle_test_sums, Params, 32) {
  float values[8];
  for (int i = 0; i < 8; ++i) {
    values[i] = params.in[i * 32 + static_cast<int>(threadIdx.x)];
  }
  float one_by_one = 0.0F;
  for (unsigned i = 0; i < 8; ++i) {
    const float sum = warp_sum(values[i]);
    one_by_one = i == threadIdx.x / 4 ? sum : one_by_one;
  }
  params.out[threadIdx.x] = static_cast<std::int32_t>(float_bits(one_by_one));
  params.out[32 + threadIdx.x] = static_cast<std::int32_t>(float_bits(warp_sums(values)));
}

TEST(Threads, SumsTogetherAreThoseOfEachToTheBit) {
  std::vector<float> in(8 * std::size_t{32});
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = std::sin(static_cast<float>(i)) * static_cast<float>(i % 13);  // Round where they meet.
  }
  std::vector<std::int32_t> out(64);
  ASSERT_TRUE(launch(heddle_test_sums, {}, {32}, Params{out.data(), in.data(), 0}));
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], out[32 + i]) << "lane " << i;
  }
  EXPECT_NE(out[0], out[4]);
}

struct MmaParams {
  const std::uint16_t* a;  // [16, 16]
  const std::uint16_t* b;  // [16, 8]
  float* d;                // [16, 8], twice: of fragments loaded by hand and from matrices.
};
HEDDLE_KERNEL(heddle_test_mma, MmaParams, 32) {
  const unsigned g = lane_index() / 4;
  const unsigned t = lane_index() % 4;
  __shared__ uint4 a_shared[32];
  __shared__ uint4 b_shared[16];
  auto* a_bytes = reinterpret_cast<std::byte*>(a_shared);
  auto* b_bytes = reinterpret_cast<std::byte*>(b_shared);
  copy_async(a_bytes + lane_index() * 16,
             reinterpret_cast<const std::byte*>(params.a) + lane_index() * 16,
             true);
  copy_async(b_bytes + lane_index() % 16 * 16,
             reinterpret_cast<const std::byte*>(params.b) + lane_index() % 16 * 16,
             true);
  copy_async_commit();
  std::uint32_t a[4];
  for (unsigned i = 0; i < 4; ++i) {
    const std::uint16_t* at = params.a + (g + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;
    a[i] = at[0] | (static_cast<std::uint32_t>(at[1]) << 16U);
  }
  std::uint32_t b[2];
  for (unsigned i = 0; i < 2; ++i) {
    const std::uint16_t* at = params.b + (2 * t + i * 8) * 8 + g;
    b[i] = at[0] | (static_cast<std::uint32_t>(at[8]) << 16U);
  }
  float d[4] = {1.0F, 1.0F, 1.0F, 1.0F};
  mma_bf16(d, a, b);
  copy_async_wait<0>();
  sync_warp();
  // Matrices by eight lanes: rows 0..7 and 8..15 of a's left half, then of its right half.
  load_matrices(a, a_bytes + (lane_index() % 16) * 32 + lane_index() / 16 * 16);
  std::uint32_t b4[4];
  load_matrices_transposed(b4, b_bytes + lane_index() % 16 * 16);
  const std::uint32_t b2[2] = {b4[0], b4[1]};
  float e[4] = {1.0F, 1.0F, 1.0F, 1.0F};
  mma_bf16(e, a, b2);
  for (unsigned i = 0; i < 4; ++i) {
    params.d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = d[i];
    params.d[128 + (g + i / 2 * 8) * 8 + 2 * t + i % 2] = e[i];
  }
}

TEST(Threads, TensorCoresMultiply) {
  alignas(16) std::uint16_t a[256];
  alignas(16) std::uint16_t b[128];
  for (unsigned i = 0; i < 256; ++i) {
    a[i] = to_bf16(static_cast<float>(i % 17) - 8.0F);
  }
  for (unsigned i = 0; i < 128; ++i) {
    b[i] = to_bf16(static_cast<float>(i % 11) - 5.0F);
  }
  std::vector<float> d(256);
  ASSERT_TRUE(launch(heddle_test_mma, {}, {32}, MmaParams{a, b, d.data()}));
  for (unsigned row = 0; row < 16; ++row) {
    for (unsigned column = 0; column < 8; ++column) {
      float sum = 1.0F;
      for (unsigned k = 0; k < 16; ++k) {
        sum += from_bf16(a[row * 16 + k]) * from_bf16(b[k * 8 + column]);
      }
      EXPECT_EQ(d[row * 8 + column], sum);
      EXPECT_EQ(d[128 + row * 8 + column], sum);
    }
  }
}

HEDDLE_KERNEL(heddle_test_copies, Params, 32) {
  __shared__ uint4 memory[64];
  auto* bytes = reinterpret_cast<std::byte*>(memory);
  const auto* source = reinterpret_cast<const std::byte*>(params.in);
  copy_async(bytes + threadIdx.x * 16, source, true);
  copy_async_commit();
  copy_async(bytes + (32 + threadIdx.x) * 16, source, false);
  copy_async_commit();
  copy_async_wait<1>();
  if (params.n != 0) {
    copy_async_wait<0>();
  }
  params.out[threadIdx.x] = static_cast<std::int32_t>(memory[threadIdx.x].x);
  params.out[32 + threadIdx.x] = static_cast<std::int32_t>(memory[32 + threadIdx.x].y);
}

TEST(Threads, CopiesArriveWhenTheyAreWaitedForAndNotBefore) {
  alignas(16) const std::int32_t source[4] = {7, 8, 9, 10};
  for (const std::int32_t waits : {0, 1}) {
    std::vector<std::int32_t> out(64);
    ASSERT_TRUE(launch(heddle_test_copies,
                       {},
                       {32},
                       Params{out.data(), reinterpret_cast<const float*>(source), waits}));
    EXPECT_EQ(out[5], 7);
    EXPECT_EQ(out[37], waits == 0 ? -1 : 0);
  }
}

HEDDLE_KERNEL(heddle_test_half_a_barrier, Params, 64) {
  if (threadIdx.x % 32 < 16) {
    params.out[threadIdx.x] = static_cast<std::int32_t>(warp_ballot(true));
  }
}
HEDDLE_KERNEL(heddle_test_ended_threads, Params, 64) {
  if (threadIdx.x >= 40) {
    return;
  }
  __syncthreads();
  params.out[threadIdx.x] = 1;
}

TEST(Threads, WaitingForLanesThatNeverComeIsAFailure) {
  std::vector<std::int32_t> out(64);
  EXPECT_FALSE(launch(heddle_test_half_a_barrier, {}, {64}, Params{out.data(), nullptr, 0}));
  EXPECT_TRUE(launch(heddle_test_ended_threads, {}, {64}, Params{out.data(), nullptr, 0}))
      << "threads that have ended are not waited for";
  EXPECT_EQ(out[39], 1);
}

HEDDLE_KERNEL(heddle_test_loads, Params, 32) {
  if (threadIdx.x == 7) {
    params.out[0] = static_cast<std::int32_t>(reinterpret_cast<const float2*>(params.in)->x);
  }
}

TEST(Threads, FaultsEndTheLaunchAndNothingElse) {
  std::vector<std::int32_t> out(64);
  void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_FALSE(
      launch(heddle_test_loads, {4}, {32}, Params{out.data(), static_cast<const float*>(hole), 0}));
  EXPECT_EQ(std::string(emulator::last_failure()), "an illegal address");
  munmap(hole, 4096);
  alignas(8) const float values[4] = {1.0F, 2.0F, 3.0F, 4.0F};
  EXPECT_FALSE(launch(heddle_test_loads, {4}, {32}, Params{out.data(), values + 1, 0}));
  EXPECT_EQ(std::string(emulator::last_failure()), "a misaligned access or a trap");
  EXPECT_TRUE(launch(heddle_test_loads, {4}, {32}, Params{out.data(), values + 2, 0}));
  EXPECT_EQ(out[0], 3);
}

TEST(Threads, LaunchesThatNoDeviceTakesAreRefused) {
  std::vector<std::int32_t> out(64);
  const Params params{out.data(), nullptr, 0};
  EXPECT_FALSE(launch(heddle_test_indices, {0}, {32}, params));
  EXPECT_FALSE(launch(heddle_test_indices, {1, 65536}, {32}, params));
  EXPECT_FALSE(launch(heddle_test_indices, {}, {1025}, params));
  EXPECT_FALSE(launch(heddle_test_indices, {}, {96}, params)) << "more than it was made for";
}

}  // namespace
