#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "ops/cpu/simd/choice.h"
#ifdef __x86_64__
#include "ops/cpu/simd/test_amx.h"
#endif
#include "ops/kv_row.h"
#include "ops/op_test.h"

namespace heddle::ops::cpu {
namespace {

constexpr std::string_view kAmx = "amx";

/// All that this processor runs, and that of the tile unit where nothing else is missing.
std::vector<const SimdKernels*> tested_sets() {
  std::vector<const SimdKernels*> sets = runnable_simd_kernels();
#ifdef __x86_64__
  if (sets.back()->name == std::string_view("avx512_bf16")) {
    sets.push_back(&simd_emulated_amx());
  }
#endif
  return sets;
}

class SimdKernelsTest : public OpTest {
 protected:
  /// Runs every set and expects what each returns to be the same, to the bit; within `by_tiles`
  /// where tiles add up in another order.
  template <class Run>
  void expect_same(const Run& run, double by_tiles = 0) {
    const auto sets = tested_sets();
    const std::vector<float> expected = run(*sets.front());
    for (const SimdKernels* set : sets) {
      const std::vector<float> got = run(*set);
      if (by_tiles > 0 && set->name == kAmx) {
        ASSERT_EQ(got.size(), expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], expected[i], by_tiles) << i;
        }
      } else {
        EXPECT_TRUE(same_bits(got, expected)) << set->name;
      }
    }
  }
};

/// Rows of KV in codes, and their scales behind all of them.
std::vector<std::byte> code_rows(DType dtype, const std::vector<float>& numbers, std::int64_t dim) {
  const std::int64_t rows = std::ssize(numbers) / dim;
  std::vector<std::byte> cached(static_cast<std::size_t>(rows * (dim + 2)));
  for (std::int64_t row = 0; row < rows; ++row) {
    put_kv_row(dtype,
               numbers.data() + row * dim,
               dim,
               cached.data() + row * dim,
               cached.data() + rows * dim + 2 * row);
  }
  return cached;
}

/// Keys that are values as well, in blocks of 19 positions in some order.
struct SmallCache {
  static constexpr std::int64_t kDim = 48;
  static constexpr std::int64_t kBlockTokens = 19;

  DType dtype{};
  std::vector<std::byte> blocks{};
  std::vector<std::int32_t> table{5, 2, 7, 0, 3, 6, 1, 4};

  explicit SmallCache(DType type, const std::vector<float>& numbers) : dtype(type) {
    const auto block = std::ssize(numbers) / std::ssize(table);
    for (std::int64_t at = 0; at < std::ssize(numbers); at += block) {
      const std::vector<float> some(numbers.begin() + at, numbers.begin() + at + block);
      std::vector<std::byte> bytes(some.size() * sizeof(float));
      std::memcpy(bytes.data(), some.data(), bytes.size());
      if (spec::kv_is_scaled(dtype)) {
        bytes = code_rows(dtype, some, kDim);
      }
      blocks.insert(blocks.end(), bytes.begin(), bytes.end());
    }
  }

  /// Attention of tokens of `group` heads each, of which the first is at `position`.
  [[nodiscard]] std::vector<float> attend(const SimdKernels& set,
                                          const std::vector<float>& query,
                                          std::int64_t group,
                                          std::int64_t position,
                                          std::int64_t window) const {
    const bool scaled = spec::kv_is_scaled(dtype);
    const auto token_bytes = kDim * static_cast<std::int64_t>(scaled ? 1 : sizeof(float));
    const std::byte* const scales = scaled ? blocks.data() + kBlockTokens * kDim : nullptr;
    std::vector<float> out(query.size());
    const auto run = dtype == DType::kF32  ? set.attention_f32
                     : dtype == DType::kI8 ? set.attention_int8
                                           : set.attention_f8;
    run({.query = query.data(),
         .query_stride = group * kDim,
         .out = reinterpret_cast<std::byte*>(out.data()),
         .out_stride = group * kDim,
         .group = group,
         .row_begin = 0,
         .row_end = std::ssize(query) / kDim,
         .first_position = position,
         .window = window,
         .head_dim = kDim,
         .scale = 0.3F,
         .keys = blocks.data(),
         .values = blocks.data(),
         .key_scales = scales,
         .value_scales = scales,
         .token_bytes = token_bytes,
         .block_bytes = std::ssize(blocks) / std::ssize(table),
         .block_tokens = kBlockTokens,
         .block_table = table.data()});
    return out;
  }
};

/// A product of `tokens` tokens of x with `outputs` rows of `inputs` weights by one kernel.
struct Product {
  std::int64_t tokens = 0;
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
  const void* x = nullptr;
  std::int64_t x_bytes = 0;  ///< Of a number.
  const void* weight = nullptr;
  const float* scale = nullptr;
  const float* bias = nullptr;

  /// Of tokens [begin, end) alone.
  [[nodiscard]] std::vector<float> by(const LinearKernel& kernel,
                                      std::int64_t begin,
                                      std::int64_t end) const {
    const std::int64_t count = end - begin;
    const std::int64_t token_bytes = kernel.token_bytes(inputs);
    const std::int64_t tiles = (count + kPackTokens - 1) / kPackTokens;
    std::vector<std::byte> packed(static_cast<std::size_t>(tiles * kPackTokens * token_bytes));
    std::vector<float> x_scale(static_cast<std::size_t>(tiles * kPackTokens));
    const auto* from = static_cast<const std::byte*>(x) + begin * inputs * x_bytes;
    for (std::int64_t first = 0; first < count; first += kPackTokens) {
      kernel.pack({.x = from + first * inputs * x_bytes,
                   .x_stride = inputs,
                   .tokens = std::min(kPackTokens, count - first),
                   .inputs = inputs,
                   .out = packed.data() + first * token_bytes,
                   .scale = x_scale.data() + first});
    }
    std::vector<float> out(static_cast<std::size_t>(count * outputs));
    kernel.multiply({.x = from,
                     .x_stride = inputs,
                     .packed = packed.data(),
                     .x_scale = x_scale.data(),
                     .weight = static_cast<const std::byte*>(weight),
                     .scale = scale,
                     .bias = bias,
                     .out = out.data(),
                     .out_stride = outputs,
                     .tokens = count,
                     .outputs = outputs,
                     .inputs = inputs});
    return out;
  }

  /// Of all tokens, which are the same to the bit where they come a few at a time.
  [[nodiscard]] std::vector<float> by(const LinearKernel& kernel) const {
    std::vector<float> all = by(kernel, 0, tokens);
    std::vector<float> parts;
    for (std::int64_t begin = 0, count = 1; begin < tokens; begin += count, count = count % 5 + 1) {
      const auto part = by(kernel, begin, std::min(begin + count, tokens));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(same_bits(parts, all));
    return all;
  }
};

/// Bytes of the panels of a type of blocks, in the order of SimdKernels::linear_blocks, by block.
constexpr std::int64_t kPanelBlockBytes[] = {544, 288, 320, 352, 384, 2304, 2816, 3360};

TEST_F(SimdKernelsTest, BlocksHaveOneAnswer) {
  for (std::size_t type = 0; type < std::size(kPanelBlockBytes); ++type) {
    for (const std::int64_t tokens : {1, 2, 17, 70}) {
      constexpr std::int64_t kInputs = 768;
      constexpr std::int64_t kOutputs = 48;
      const std::int64_t blocks = kInputs / (type < 5 ? 32 : 256);
      std::vector<std::uint8_t> panels(
          static_cast<std::size_t>(kOutputs / 16 * blocks * kPanelBlockBytes[type]));
      for (std::uint8_t& byte : panels) {
        byte = static_cast<std::uint8_t>(rng_.below(256));
      }
      for (std::size_t at = 0; at < panels.size();
           at += static_cast<std::size_t>(kPanelBlockBytes[type])) {
        for (std::size_t i = 1; i < 64; i += 2) {
          panels[at + i] &= 0xbbU;  // No float16 of scales and minima is infinite.
        }
      }
      const auto x = rounded(random(tokens * kInputs));
      expect_same([&](const SimdKernels& set) {
        const Product product{.tokens = tokens,
                              .outputs = kOutputs,
                              .inputs = kInputs,
                              .x = x.data(),
                              .x_bytes = 2,
                              .weight = panels.data()};
        return product.by(set.linear_blocks[type]);
      });
    }
  }
}

// Sizes that take each way through a product, and end within tiles, steps and slabs.
constexpr std::int64_t kTokenCounts[] = {1, 2, 5, 8, 16, 19, 70};
constexpr std::int64_t kInputCounts[] = {7, 77, 1056, 2100};
constexpr std::int64_t kOutputCount = 103;

TEST_F(SimdKernelsTest, LinearHasOneAnswer) {
  const auto bias = random(kOutputCount);
  for (const std::int64_t tokens : kTokenCounts) {
    for (const std::int64_t inputs : kInputCounts) {
      const auto x = random(tokens * inputs);
      const auto weight = random(kOutputCount * inputs);
      const auto half = rounded(weight);
      const auto half_x = rounded(x);
      Product product{
          .tokens = tokens, .outputs = kOutputCount, .inputs = inputs, .bias = bias.data()};
      product.x = x.data();
      product.x_bytes = 4;
      product.weight = weight.data();
      expect_same([&](const SimdKernels& set) { return product.by(set.linear_f32); });
      product.x = half_x.data();
      product.x_bytes = 2;
      product.weight = half.data();
      expect_same([&](const SimdKernels& set) { return product.by(set.linear_bf16); },
                  inputs % 32 == 0 ? 1e-3 : 0);
    }
  }
}

TEST_F(SimdKernelsTest, LinearOverInt8HasOneAnswer) {
  const auto scale = random(kOutputCount);
  for (const std::int64_t tokens : kTokenCounts) {
    for (const std::int64_t inputs : {77, 1056, 8320, 16448}) {
      const auto x = rounded(random(tokens * inputs));
      std::vector<std::int8_t> weight(static_cast<std::size_t>(kOutputCount * inputs));
      for (std::int8_t& value : weight) {
        value = static_cast<std::int8_t>(static_cast<int>(rng_.below(255)) - 127);
      }
      const Product product{.tokens = tokens,
                            .outputs = kOutputCount,
                            .inputs = inputs,
                            .x = x.data(),
                            .x_bytes = 2,
                            .weight = weight.data(),
                            .scale = scale.data()};
      expect_same([&](const SimdKernels& set) { return product.by(set.linear_int8); });
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
  const std::vector<float> sinks{1.0F, 4.0F};
  for (const float soft_cap : {0.0F, 1.5F}) {
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
                         .soft_cap = soft_cap,
                         .sinks = soft_cap > 0 ? nullptr : sinks.data(),
                         .keys = reinterpret_cast<const std::byte*>(keys.data()),
                         .values = reinterpret_cast<const std::byte*>(values.data()),
                         .token_bytes = kDim * 4,
                         .block_bytes = 0,
                         .block_tokens = kPositions,
                         .block_table = table.data()});
      return out;
    });
  }
}

TEST_F(SimdKernelsTest, AttentionOverCodesHasOneAnswer) {
  constexpr std::int64_t kTokens = 3;
  constexpr std::int64_t kGroup = 6;
  constexpr std::int64_t kPositions = 300;
  for (const auto& [dim, dtype] : {std::pair(40, DType::kI8),
                                   std::pair(64, DType::kI8),
                                   std::pair(40, DType::kF8),
                                   std::pair(64, DType::kF8)}) {
    const auto query = random(kTokens * kGroup * dim, 2.0F);
    const std::vector<std::byte> keys = code_rows(dtype, random(kPositions * dim), dim);
    const std::vector<std::byte> values = code_rows(dtype, random(kPositions * dim), dim);
    const std::vector<std::int32_t> table{0};
    const auto run = [&](const SimdKernels& set) {
      std::vector<float> out(static_cast<std::size_t>(kTokens * kGroup * dim));
      const auto attend = dtype == DType::kI8 ? set.attention_int8 : set.attention_f8;
      attend({.query = query.data(),
              .query_stride = kGroup * dim,
              .out = reinterpret_cast<std::byte*>(out.data()),
              .out_stride = kGroup * dim,
              .group = kGroup,
              .row_begin = 0,
              .row_end = kTokens * kGroup,
              .first_position = kPositions - kTokens,
              .window = 277,
              .head_dim = dim,
              .scale = 0.3F,
              .keys = keys.data(),
              .values = values.data(),
              .key_scales = keys.data() + kPositions * dim,
              .value_scales = values.data() + kPositions * dim,
              .token_bytes = dim,
              .block_tokens = kPositions,
              .block_table = table.data()});
      return out;
    };
    expect_same(run, dim % 32 == 0 ? 0.05 : 0);  // Tiles round what they multiply to bfloat16.
  }
}

TEST_F(SimdKernelsTest, AttentionReadsEachE4m3AsTheNumberItIs) {
  constexpr std::int64_t kDim = 256;  // A position whose element i is code i.
  std::vector<std::byte> codes(kDim);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::byte>(i % 128 == 127 ? 0 : i);  // Those are not numbers.
  }
  const std::uint16_t one = to_bf16(1.0F);
  const auto* const scale = reinterpret_cast<const std::byte*>(&one);
  const std::vector<float> query(kDim);
  const std::vector<std::int32_t> table{0};
  for (const SimdKernels* set : tested_sets()) {
    std::vector<float> out(kDim, -1.0F);
    set->attention_f8({.query = query.data(),
                       .out = reinterpret_cast<std::byte*>(out.data()),
                       .group = 1,
                       .row_begin = 0,
                       .row_end = 1,
                       .head_dim = kDim,
                       .keys = codes.data(),
                       .values = codes.data(),
                       .key_scales = scale,
                       .value_scales = scale,
                       .token_bytes = kDim,
                       .block_tokens = 1,
                       .block_table = table.data()});
    for (std::size_t i = 0; i < codes.size(); ++i) {
      ASSERT_EQ(out[i], spec::f32_of_e4m3(static_cast<std::uint8_t>(codes[i]))) << set->name;
    }
  }
}

TEST_F(SimdKernelsTest, AttentionOfATokenHasTheBitsItHasAmongOthers) {
  constexpr std::int64_t kPositions = 150;  // The tokens are in a tile that is not full.
  constexpr std::int64_t kTokens = 4;
  constexpr std::int64_t kDim = SmallCache::kDim;
  for (const DType dtype : {DType::kF32, DType::kI8, DType::kF8}) {
    const SmallCache cache(dtype, random(8 * SmallCache::kBlockTokens * kDim));
    for (std::int64_t group = 1; group <= 16; ++group) {  // Four tokens' are 64 rows at most.
      const auto query = random(kTokens * group * kDim, 2.0F);
      const std::int64_t window = group % 3 == 0 ? 90 : 0;
      const auto together = [&](const SimdKernels& set) {
        return cache.attend(set, query, group, kPositions - kTokens, window);
      };
      expect_same(together);
      expect_same([&](const SimdKernels& set) {
        std::vector<float> each;
        for (std::int64_t token = 0; token < kTokens; ++token) {
          const auto first = query.begin() + token * group * kDim;
          const std::vector<float> own(first, first + group * kDim);
          const auto out = cache.attend(set, own, group, kPositions - kTokens + token, window);
          each.insert(each.end(), out.begin(), out.end());
        }
        EXPECT_TRUE(same_bits(each, together(set))) << set.name << " in groups of " << group;
        return each;
      });
    }
  }
}

TEST_F(SimdKernelsTest, AttentionInTwoPartsHasTheBitsOfOneInEachSet) {
  constexpr std::int64_t kTokens = 11;
  constexpr std::int64_t kGroup = 3;
  constexpr std::int64_t kDim = 64;
  constexpr std::int64_t kPositions = 400;
  const auto query = random(kTokens * kGroup * kDim, 2.0F);
  const auto keys = rounded(random(kPositions * kDim));
  const auto values = rounded(random(kPositions * kDim));
  const std::vector<std::int32_t> table{0};
  const std::vector<float> sinks{-3.0F, 1.0F, 6.0F};
  for (const SimdKernels* set : tested_sets()) {
    std::vector<float> whole(kTokens * kGroup * kDim);
    AttentionBlock block{.query = query.data(),
                         .query_stride = kGroup * kDim,
                         .out = reinterpret_cast<std::byte*>(whole.data()),
                         .out_stride = kGroup * kDim,
                         .group = kGroup,
                         .row_begin = 0,
                         .row_end = kTokens * kGroup,
                         .first_position = kPositions - kTokens,
                         .head_dim = kDim,
                         .scale = 0.3F,
                         .sinks = sinks.data(),
                         .keys = reinterpret_cast<const std::byte*>(keys.data()),
                         .values = reinterpret_cast<const std::byte*>(values.data()),
                         .token_bytes = kDim * 2,
                         .block_tokens = kPositions,
                         .block_table = table.data()};
    set->attention_bf16(block);
    for (std::int64_t border = set->attention_step; border < kPositions - kTokens;
         border += set->attention_step) {
      std::vector<float> parts(whole.size());
      std::vector<float> state(kTokens * kGroup * (kDim + 2));
      AttentionBlock early = block;
      early.end = border;
      early.left = state.data();
      early.left_stride = kGroup * (kDim + 2);
      set->attention_bf16(early);
      AttentionBlock late = block;
      late.begin = border;
      late.resumed = state.data();
      late.resumed_stride = kGroup * (kDim + 2);
      late.out = reinterpret_cast<std::byte*>(parts.data());
      set->attention_bf16(late);
      ASSERT_TRUE(same_bits(whole, parts)) << set->name << " at " << border;
    }
  }
}

TEST_F(SimdKernelsTest, PointwiseLoopsHaveOneAnswer) {
  const auto x = random(1000, 20.0F);
  const auto y = random(1000);
  for (const auto gated : {&SimdKernels::silu_mul, &SimdKernels::gelu_mul}) {
    for (const float limit : {0.0F, 0.8F}) {
      expect_same([&](const SimdKernels& set) {
        std::vector<float> out(x.size());
        (set.*gated)({.gate = x.data(),
                      .up = y.data(),
                      .out = reinterpret_cast<std::byte*>(out.data()),
                      .n = 1000,
                      .limit = limit,
                      .gain = 1.702F});
        return out;
      });
    }
  }
  expect_same([&](const SimdKernels& set) {
    std::vector<float> out(x.size());
    set.rescale({.x = x.data(),
                 .out = reinterpret_cast<std::byte*>(out.data()),
                 .n = 1000,
                 .factor = 0.7F,
                 .cap = 3.0F});
    return out;
  });
  expect_same([&](const SimdKernels& set) {
    std::vector<float> out(x.size());
    set.gelu({.x = x.data(), .out = reinterpret_cast<std::byte*>(out.data()), .n = 1000});
    return out;
  });
  expect_same([&](const SimdKernels& set) {
    std::vector<float> out(x.size());
    std::vector<float> copy(x.size());
    set.layer_norm({.x = x.data(),
                    .weight = y.data(),
                    .bias = y.data(),
                    .out = out.data(),
                    .copy = reinterpret_cast<std::byte*>(copy.data()),
                    .columns = 1000,
                    .eps = 1e-6F});
    return copy;
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

TEST_F(SimdKernelsTest, GatesHaveOneAnswer) {
  const auto gate = random(1000, 20.0F);
  const auto x = random(1000);
  expect_same([&](const SimdKernels& set) {
    std::vector<float> rows = x;
    set.sigmoid_mul(
        {.gate = gate.data(), .rows = reinterpret_cast<std::byte*>(rows.data()), .n = 1000});
    return rows;
  });
}

TEST_F(SimdKernelsTest, TheDeltaRuleHasOneAnswer) {
  constexpr std::int64_t kTokens = 21;
  constexpr std::int64_t kKeys = 23;
  constexpr std::int64_t kValues = 40;
  constexpr std::int64_t kStrips = 3;
  constexpr std::int64_t kChannels = 2 * kKeys + 2 * kValues;
  constexpr std::int64_t kWidth = kChannels + 2 * kValues;
  const auto in = random(kTokens * kWidth);
  const auto conv = random(kChannels * 4);
  const auto norm = random(kValues);
  const auto beta = std::vector<float>(kTokens * 2, 0.7F);
  const auto alpha = std::vector<float>(kTokens * 2, 0.9F);
  const auto tail_before = random(3 * kChannels);
  const auto state_before = random(2 * kStrips * kKeys * 16);
  expect_same([&](const SimdKernels& set) {
    std::vector<float> tail = tail_before;
    std::vector<float> state = state_before;
    std::vector<float> out(kTokens * 2 * kValues);
    set.gated_delta({.in = in.data(),
                     .in_stride = kWidth,
                     .tokens = kTokens,
                     .query = 0,
                     .key = kKeys,
                     .value = 2 * kKeys,
                     .gate = kChannels,
                     .key_dim = kKeys,
                     .value_dim = kValues,
                     .value_heads = 2,
                     .strips = kStrips,
                     .conv = conv.data(),
                     .kernel = 4,
                     .beta = beta.data(),
                     .alpha = alpha.data(),
                     .rate_stride = 2,
                     .tail = tail.data(),
                     .state = state.data(),
                     .norm = norm.data(),
                     .eps = 1e-6F,
                     .out = reinterpret_cast<std::byte*>(out.data()),
                     .out_stride = 2 * kValues});
    out.insert(out.end(), tail.begin(), tail.end());
    out.insert(out.end(), state.begin(), state.end());
    return out;
  });
}

TEST(SimdKernels, AreTheFastestOrThoseThatAreNamed) {
  const auto sets = runnable_simd_kernels();
  EXPECT_EQ(find_simd_kernels(nullptr).value(), sets.back());
  EXPECT_EQ(find_simd_kernels("").value(), sets.back());
  for (const SimdKernels* set : sets) {
    EXPECT_EQ(find_simd_kernels(set->name).value(), set);
  }
  EXPECT_EQ(&simd_kernels(), chosen_simd_kernels().value());
}

TEST(SimdKernels, OfOtherNamesAreRefusedWithWhatIsPossible) {
  const auto refused = find_simd_kernels("mmx");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_THAT(refused.error().message,
              testing::AllOf(testing::HasSubstr("'mmx'"),
                             testing::HasSubstr("this processor runs generic")));
}

}  // namespace
}  // namespace heddle::ops::cpu
