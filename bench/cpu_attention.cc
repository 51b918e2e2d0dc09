// Attention in decode over long contexts by itself: one token of each of some sequences, over keys
// and values in bfloat16, int8 and FP8, in one run and by turns. One thread, best of many rounds,
// by each set of instructions that this processor runs (but `generic`). The caches are far larger
// than those of the processor, so that what counts is how fast bytes come from memory.
//
//   cpu_attention [CONTEXT]     (default: 8192 positions)
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "bench/cpu_ceilings.h"
#include "ops/cpu/simd/choice.h"
#include "ops/paged_kv.h"

namespace heddle {
namespace {

constexpr std::int64_t kSequences = 4;
constexpr std::int64_t kBlockTokens = 16;
constexpr int kRounds = 9;

/// Of a model: query heads for each key head, key heads, and their width.
struct Heads {
  std::int64_t group = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

/// A cache of one layer, whose blocks lie in random order, as a cache's do after a while.
struct Cache {
  ops::DType dtype{};
  Heads heads{};
  std::int64_t side = 0;  ///< Bytes of the keys of a block, with their scales.
  std::vector<std::byte> bytes{};
  std::vector<std::int32_t> table{};
};

Cache make_cache(ops::DType dtype, const Heads& heads, std::int64_t context) {
  Cache cache{.dtype = dtype, .heads = heads};
  const auto row = static_cast<std::int64_t>(spec::kv_row_bytes(dtype, heads.head_dim));
  cache.side = heads.kv_heads * kBlockTokens * row;
  const std::int64_t blocks = kSequences * context / kBlockTokens;
  cache.bytes.assign(static_cast<std::size_t>(2 * cache.side * blocks), std::byte{0x3c});
  Rng rng(1);
  for (std::int64_t i = 0; i < blocks; ++i) {
    cache.table.push_back(static_cast<std::int32_t>(i));
    std::swap(cache.table.back(), cache.table[rng.below(static_cast<std::uint64_t>(i + 1))]);
  }
  return cache;
}

/// Seconds that a token of each sequence takes: of each key head of each the best of all rounds.
class Decode {
 public:
  Decode(const ops::cpu::SimdKernels& set, const Cache& cache, std::int64_t context)
      : attend_(cache.dtype == ops::DType::kI8   ? set.attention_int8
                : cache.dtype == ops::DType::kF8 ? set.attention_f8
                                                 : set.attention_bf16),
        cache_(cache),
        context_(context),
        query_(static_cast<std::size_t>(cache.heads.group * cache.heads.head_dim), 0.01F),
        out_(query_.size()),
        best_(static_cast<std::size_t>(kSequences * cache.heads.kv_heads)) {}

  void round() {
    const Heads& h = cache_.heads;
    const auto token = h.head_dim * static_cast<std::int64_t>(spec::kv_element_bytes(cache_.dtype));
    for (std::int64_t i = 0; i < std::ssize(best_); ++i) {
      const std::int64_t head = i % h.kv_heads * kBlockTokens;
      const std::byte* const keys = cache_.bytes.data() + head * token;
      const std::byte* const scales =
          cache_.bytes.data() + h.kv_heads * kBlockTokens * token + head * 2;
      const ops::cpu::AttentionBlock block{
          .query = query_.data(),
          .out = reinterpret_cast<std::byte*>(out_.data()),
          .group = h.group,
          .row_begin = 0,
          .row_end = h.group,
          .first_position = context_ - 1,
          .head_dim = h.head_dim,
          .scale = 0.1F,
          .keys = keys,
          .values = keys + cache_.side,
          .key_scales = scales,
          .value_scales = scales + cache_.side,
          .token_bytes = token,
          .block_bytes = 2 * cache_.side,
          .block_tokens = kBlockTokens,
          .block_table = cache_.table.data() + i / h.kv_heads * (context_ / kBlockTokens)};
      best_[static_cast<std::size_t>(i)].take([&] { attend_(block); });
    }
  }

  [[nodiscard]] double seconds() const {
    double sum = 0;
    for (const bench::Best& best : best_) {
      sum += best.seconds;
    }
    return sum;
  }

 private:
  void (*attend_)(const ops::cpu::AttentionBlock&);
  const Cache& cache_;
  std::int64_t context_;
  std::vector<float> query_;
  std::vector<float> out_;
  std::vector<bench::Best> best_;
};

void run(std::int64_t context) {
  for (const Heads& heads :
       {Heads{4, 8, 128}, Heads{7, 4, 128}, Heads{4, 8, 64}, Heads{1, 32, 128}}) {
    const Cache wide = make_cache(ops::DType::kBf16, heads, context);
    const Cache narrow = make_cache(ops::DType::kI8, heads, context);
    const Cache floats = make_cache(ops::DType::kF8, heads, context);
    for (const ops::cpu::SimdKernels* set : ops::cpu::runnable_simd_kernels()) {
      if (set->name == std::string_view("generic")) {
        continue;
      }
      Decode bf16(*set, wide, context);
      Decode int8(*set, narrow, context);
      Decode fp8(*set, floats, context);
      for (int i = 0; i < kRounds; ++i) {
        bf16.round();
        int8.round();
        fp8.round();
      }
      const auto rate = [](const Cache& cache, const Decode& decode) {
        return static_cast<double>(cache.bytes.size()) / decode.seconds() * 1e-9;
      };
      std::printf(
          "%-12s %lld x %lld heads of %lld: bfloat16 %.2f ms (%.1f GB/s), int8 %.2f ms "
          "(%.1f GB/s), %.2f times as fast, FP8 %.2f ms (%.1f GB/s), %.2f times\n",
          set->name,
          static_cast<long long>(heads.group),
          static_cast<long long>(heads.kv_heads),
          static_cast<long long>(heads.head_dim),
          1e3 * bf16.seconds(),
          rate(wide, bf16),
          1e3 * int8.seconds(),
          rate(narrow, int8),
          bf16.seconds() / int8.seconds(),
          1e3 * fp8.seconds(),
          rate(floats, fp8),
          bf16.seconds() / fp8.seconds());
    }
  }
}

}  // namespace
}  // namespace heddle

int main(int count, char** arguments) {
  const std::int64_t context = count > 1 ? std::atoll(arguments[1]) : 8192;
  heddle::run(std::max<std::int64_t>(16, context / 16 * 16));
  return 0;
}
