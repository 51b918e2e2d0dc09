#include "ops/cpu/simd/kernels.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/op_test.h"

namespace heddle::ops::cpu {
namespace {

/// The instruction sets that this processor runs, the generic one first.
std::vector<const SimdKernels*> runnable() {
  std::vector<const SimdKernels*> sets{&simd_generic()};
#ifdef __x86_64__
  if (__builtin_cpu_supports("x86-64-v3")) {
    sets.push_back(&simd_x86_v3());
  }
  if (__builtin_cpu_supports("x86-64-v4")) {
    sets.push_back(&simd_x86_v4());
  }
  if (__builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16")) {
    sets.push_back(&simd_x86_bf16());
  }
  if (amx_usable()) {
    sets.push_back(&simd_x86_amx());
  }
#endif
  return sets;
}

class SimdKernelsTest : public OpTest {
 protected:
  /// Runs `kernel` with every set and expects what it returns to be the same, to the bit.
  template <class Run>
  void expect_same(const Run& run) {
    const auto sets = runnable();
    const std::vector<float> expected = run(*sets.front());
    for (const SimdKernels* set : sets) {
      EXPECT_TRUE(same_bits(run(*set), expected)) << set->name;
    }
  }
};

TEST_F(SimdKernelsTest, LinearHasOneAnswer) {
  constexpr std::int64_t kTokens = 11;
  constexpr std::int64_t kOutputs = 7;
  constexpr std::int64_t kInputs = 77;
  const auto x = random(kTokens * kInputs);
  const auto weight = random(kOutputs * kInputs);
  const auto half = rounded(weight);
  const auto half_x = rounded(x);
  for (const bool bf16 : {false, true}) {
    expect_same([&](const SimdKernels& set) {
      std::vector<float> out(kTokens * kOutputs);
      const void* weights = bf16 ? static_cast<const void*>(half.data()) : weight.data();
      const void* inputs = bf16 ? static_cast<const void*>(half_x.data()) : x.data();
      (bf16 ? set.linear_bf16 : set.linear_f32)({.x = static_cast<const std::byte*>(inputs),
                                                 .x_stride = kInputs,
                                                 .weight = static_cast<const std::byte*>(weights),
                                                 .out = out.data(),
                                                 .out_stride = kOutputs,
                                                 .tokens = kTokens,
                                                 .outputs = kOutputs,
                                                 .inputs = kInputs});
      return out;
    });
  }
}

TEST_F(SimdKernelsTest, LinearOverInt8HasOneAnswer) {
  constexpr std::int64_t kOutputs = 37;
  for (const std::int64_t tokens : {1, 5, 16}) {
    for (const std::int64_t inputs : {77, 1056, 8320}) {
      const auto x = rounded(random(tokens * inputs));
      const auto scale = random(kOutputs);
      std::vector<std::int8_t> weight(static_cast<std::size_t>(kOutputs * inputs));
      for (std::int8_t& value : weight) {
        value = static_cast<std::int8_t>(static_cast<int>(rng_.below(255)) - 127);
      }
      expect_same([&](const SimdKernels& set) {
        std::vector<std::int16_t> packed(
            static_cast<std::size_t>(kPackTokens * padded_inputs(inputs)));
        std::vector<float> x_scale(kPackTokens);
        set.pack_tokens_int8({.x = reinterpret_cast<const std::byte*>(x.data()),
                              .x_stride = inputs,
                              .tokens = tokens,
                              .inputs = inputs,
                              .out = reinterpret_cast<std::byte*>(packed.data()),
                              .scale = x_scale.data()});
        std::vector<float> out(static_cast<std::size_t>(tokens * kOutputs));
        set.linear_int8({.packed = reinterpret_cast<const std::byte*>(packed.data()),
                         .x_scale = x_scale.data(),
                         .weight = reinterpret_cast<const std::byte*>(weight.data()),
                         .scale = scale.data(),
                         .out = out.data(),
                         .out_stride = kOutputs,
                         .tokens = tokens,
                         .outputs = kOutputs,
                         .inputs = inputs});
        return out;
      });
    }
  }
}

TEST_F(SimdKernelsTest, AttentionHasOneAnswer) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kGroup = 2;
  constexpr std::int64_t kDim = 40;
  constexpr std::int64_t kPositions = 50;
  const auto query = random(kTokens * kGroup * kDim, 2.0F);
  const auto keys = random(kPositions * kDim);
  const auto values = random(kPositions * kDim);
  const std::vector<std::int32_t> table{0};
  expect_same([&](const SimdKernels& set) {
    std::vector<float> out(kTokens * kGroup * kDim);
    set.attention_f32({.query = query.data(),
                       .query_stride = kGroup * kDim,
                       .out = reinterpret_cast<std::byte*>(out.data()),
                       .out_stride = kGroup * kDim,
                       .group = kGroup,
                       .row_begin = 0,
                       .row_end = kTokens * kGroup,
                       .first_position = kPositions - kTokens,
                       .window = 37,
                       .head_dim = kDim,
                       .scale = 0.3F,
                       .keys = reinterpret_cast<const std::byte*>(keys.data()),
                       .values = reinterpret_cast<const std::byte*>(values.data()),
                       .block_bytes = 0,
                       .block_tokens = kPositions,
                       .block_table = table.data()});
    return out;
  });
}

TEST_F(SimdKernelsTest, PointwiseLoopsHaveOneAnswer) {
  const auto x = random(1000, 20.0F);
  const auto y = random(1000);
  expect_same([&](const SimdKernels& set) {
    std::vector<float> out(x.size());
    set.silu_mul({.gate = x.data(),
                  .up = y.data(),
                  .out = reinterpret_cast<std::byte*>(out.data()),
                  .n = 1000});
    return out;
  });
  expect_same([&](const SimdKernels& set) {
    std::vector<float> out(x.size());
    set.rms_norm({.x = x.data(),
                  .weight = y.data(),
                  .out = reinterpret_cast<std::byte*>(out.data()),
                  .columns = 1000,
                  .eps = 1e-6F});
    return out;
  });
}

TEST(SimdKernels, ChoosesASetThatRunsHere) {
  const auto sets = runnable();
  EXPECT_EQ(&simd_kernels(), sets.back());
}

}  // namespace
}  // namespace heddle::ops::cpu
