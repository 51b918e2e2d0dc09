// The loop of linear attention by itself: a key head of Qwen3.5-35B-A3B with its two value heads,
// over one token, 16 and 512 of them. One thread, best of many runs, by each set of instructions
// that this processor runs (but `generic`, which is slow where there is no fused multiply-add).
//
//   cpu_delta
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "bench/cpu_ceilings.h"
#include "ops/cpu/simd/choice.h"
#include "ops/gated_delta.h"

namespace heddle {
namespace {

constexpr spec::LinearAttention kShape{
    .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4};
constexpr std::int64_t kTokensMost = 512;

/// States lie on lines of the caches, as those on pages do.
struct alignas(64) Line {
  float floats[16] = {};
};

std::vector<float> random_floats(std::int64_t count) {
  Rng rng(1);
  std::vector<float> floats(static_cast<std::size_t>(count));
  for (float& value : floats) {
    value = static_cast<float>(rng.below(1U << 20U)) * 0x1p-20F - 0.5F;
  }
  return floats;
}

void run() {
  const ops::DeltaHeadLayout layout(kShape);
  const std::int64_t width = kShape.channels() + kShape.values();
  const auto in = random_floats(kTokensMost * width);
  const auto conv = random_floats(kShape.channels() * kShape.kernel);
  const auto norm = random_floats(kShape.value_dim);
  const std::vector<float> rates(static_cast<std::size_t>(kTokensMost * kShape.value_heads), 0.9F);
  std::vector<Line> memory(static_cast<std::size_t>(layout.bytes()) / sizeof(Line));
  auto* const tail = reinterpret_cast<float*>(memory.data());
  std::vector<float> out(static_cast<std::size_t>(kTokensMost * kShape.values()));
  for (const ops::cpu::SimdKernels* set : ops::cpu::runnable_simd_kernels()) {
    if (set->name == std::string_view("generic")) {
      continue;
    }
    for (const std::int64_t tokens : {std::int64_t{1}, std::int64_t{16}, kTokensMost}) {
      bench::Best best;
      for (int i = 0; i < 100; ++i) {
        best.take([&] {
          set->gated_delta({.in = in.data(),
                            .in_stride = width,
                            .tokens = tokens,
                            .query = 0,
                            .key = kShape.keys(),
                            .value = 2 * kShape.keys(),
                            .gate = kShape.channels(),
                            .key_dim = kShape.key_dim,
                            .value_dim = kShape.value_dim,
                            .value_heads = layout.value_heads,
                            .strips = layout.strips,
                            .conv = conv.data(),
                            .kernel = kShape.kernel,
                            .beta = rates.data(),
                            .alpha = rates.data(),
                            .rate_stride = kShape.value_heads,
                            .tail = tail,
                            .state = tail + layout.tail,
                            .norm = norm.data(),
                            .eps = 1e-6F,
                            .out = reinterpret_cast<std::byte*>(out.data()),
                            .out_stride = kShape.values()});
        });
      }
      std::printf("%-12s %3lld tokens: %.2f us a token and value head\n",
                  set->name,
                  static_cast<long long>(tokens),
                  1e6 * best.seconds / static_cast<double>(tokens * layout.value_heads));
    }
  }
}

}  // namespace
}  // namespace heddle

int main() {
  heddle::run();
  return 0;
}
