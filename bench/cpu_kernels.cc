// The innermost loops of matrix products, each core for itself, beside what a core can do:
//
//   in caches   one thread, weights and tokens in its caches, best of many runs
//   in memory   one thread a core without waiting for each other, in turns with a loop that only
//               reads; of each the pace that four of ten pieces reached
//
//   cpu_kernels [bfloat16|int8|Q8_0|Q4_0|...] [CORE,CORE,...]     (default: all cores that this
//   process may use)
//
// Other processes hardly disturb either as long as they leave some pieces alone. They do disturb
// cpu_linear, which measures what a whole product takes. HEDDLE_SIMD names the set.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "bench/cpu_ceilings.h"
#include "ops/cpu/simd/kernels.h"
#include "spec/block_panels.h"

#include <sched.h>

namespace heddle {
namespace {

using namespace bench;
using namespace ops::cpu;

constexpr std::int64_t kPieceBytes = 4LL << 20;
constexpr std::int64_t kPieces = 64;  ///< Of a thread's memory.
constexpr std::int64_t kTokensMax = 512;
constexpr std::int64_t kInputsMax = 8192;

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  (void)::sched_setaffinity(0, sizeof(set), &set);
}

/// A thread's product: tokens, what it writes, and the kernel.
class Product {
 public:
  explicit Product(spec::DType dtype)
      : dtype_(dtype), int8_(dtype == spec::DType::kI8), kernel_(kernel_of(dtype)) {}

  [[nodiscard]] std::int64_t row_bytes(std::int64_t inputs) const {
    return spec::row_bytes(dtype_, inputs);
  }

  void pack(std::int64_t tokens, std::int64_t inputs) {
    for (std::int64_t first = 0; first < tokens; first += kPackTokens) {
      kernel_.pack({.x = x_.data() + first * inputs * 2,
                    .x_stride = inputs,
                    .tokens = std::min(kPackTokens, tokens - first),
                    .inputs = inputs,
                    .out = packed_.data() + first * kernel_.token_bytes(inputs),
                    .scale = x_scale_.data() + first});
    }
  }

  void multiply(std::byte* weights,
                std::int64_t tokens,
                std::int64_t outputs,
                std::int64_t inputs) {
    kernel_.multiply({.x = x_.data(),
                      .x_stride = inputs,
                      .packed = packed_.data(),
                      .x_scale = x_scale_.data(),
                      .weight = weights,
                      .scale = int8_ ? scale_.data() : nullptr,
                      .out = out_.data(),
                      .out_stride = outputs,
                      .tokens = tokens,
                      .outputs = outputs,
                      .inputs = inputs});
  }

 private:
  static LinearKernel kernel_of(spec::DType dtype) {
    const SimdKernels& set = simd_kernels();
    if (spec::is_blocks(dtype)) {
      return set.linear_blocks[static_cast<int>(dtype) - static_cast<int>(spec::DType::kQ80)];
    }
    return dtype == spec::DType::kI8 ? set.linear_int8 : set.linear_bf16;
  }

  spec::DType dtype_;
  bool int8_;
  LinearKernel kernel_;
  Memory x_{kTokensMax * kInputsMax * 2};
  Memory packed_{kTokensMax * kInputsMax * 4 + (1 << 20)};
  std::vector<float> x_scale_ = std::vector<float>(kTokensMax);
  std::vector<float> scale_ = std::vector<float>(1 << 16, 1e-3F);
  std::vector<float> out_ = std::vector<float>(1 << 20);
};

void in_caches(spec::DType dtype, int core) {
  struct Shape {
    std::int64_t tokens = 0;
    std::int64_t outputs = 0;
    std::int64_t inputs = 0;
  };
  double dot = 0.0;
  if (__builtin_cpu_supports("avx512bf16")) {
    Best best;
    for (int i = 0; i < 300; ++i) {
      best.take([] { dot_all(kDots / 200); });
    }
    dot = 64e-9 * kDots / 200 / best.seconds;
    std::printf("core %d: dot %.0f GFLOP/s\n", core, dot);
  }
  Product product(dtype);
  Memory weights(kPieceBytes);
  for (const Shape s : {Shape{512, 96, 2048},
                        Shape{256, 96, 8192},
                        Shape{8, 48, 768},
                        Shape{8, 48, 2048},
                        Shape{8, 12, 8192},
                        Shape{1, 48, 2048}}) {
    const double flop = 2e-9 * static_cast<double>(s.tokens * s.outputs * s.inputs);
    product.pack(s.tokens, s.inputs);
    Best best;
    for (int i = 0; i < 300; ++i) {
      const int times = std::max(1, static_cast<int>(0.02 / flop));
      best.seconds = std::min(best.seconds, seconds_of([&] {
                                              for (int time = 0; time < times; ++time) {
                                                product.multiply(
                                                    weights.data(), s.tokens, s.outputs, s.inputs);
                                              }
                                            }) / times);
    }
    std::printf("%3lld x %2lld x %4lld  %6.1f GFLOP/s = %5.1f %% of dot\n",
                static_cast<long long>(s.tokens),
                static_cast<long long>(s.outputs),
                static_cast<long long>(s.inputs),
                flop / best.seconds,
                dot > 0.0 ? 100.0 * flop / best.seconds / dot : 0.0);
  }
}

constexpr std::int64_t kTokenCounts[] = {0, 1, 2, 4, 8, 16};  ///< 0 only reads.
constexpr std::size_t kKinds = std::size(kTokenCounts);

/// Bytes a second of each kind that one thread reached.
std::vector<double> paces(spec::DType dtype, std::int64_t inputs) {
  Product product(dtype);
  Memory memory(kPieces * kPieceBytes);
  const std::int64_t rows = kPieceBytes / product.row_bytes(inputs) / 16 * 16;
  const std::int64_t bytes = rows * product.row_bytes(inputs);
  std::vector<std::vector<double>> took(kKinds);
  std::int64_t at = 0;
  for (int round = 0; round < 100; ++round) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      at = (at + 37) % kPieces;
      std::byte* piece = memory.data() + at * kPieceBytes;
      product.pack(kTokenCounts[kind], inputs);
      took[kind].push_back(seconds_of([&] {
        if (kTokenCounts[kind] == 0) {
          read_all(piece, 0, bytes);
        } else {
          product.multiply(piece, kTokenCounts[kind], rows, inputs);
        }
      }));
    }
  }
  std::vector<double> result;
  for (auto& seconds : took) {
    std::ranges::sort(seconds);
    result.push_back(static_cast<double>(bytes) / seconds[seconds.size() * 4 / 10]);
  }
  return result;
}

void in_memory(spec::DType dtype, std::span<const int> cores, std::int64_t inputs) {
  std::vector<std::vector<double>> all(cores.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < cores.size(); ++i) {
      threads.emplace_back([&, i] {
        stay_on(cores[i]);
        all[i] = paces(dtype, inputs);
      });
    }
  }
  std::vector<double> sums(kKinds);
  for (const auto& pace : all) {
    std::ranges::transform(sums, pace, sums.begin(), std::plus{});
  }
  std::printf("rows of %lld: read %.1f GB/s\n", static_cast<long long>(inputs), sums[0] / 1e9);
  for (std::size_t kind = 1; kind < kKinds; ++kind) {
    std::printf("  %2lld tokens %6.1f GB/s = %5.1f %% of read, %5.2f times the tokens of 1\n",
                static_cast<long long>(kTokenCounts[kind]),
                sums[kind] / 1e9,
                100.0 * sums[kind] / sums[0],
                static_cast<double>(kTokenCounts[kind]) * sums[kind] / sums[1]);
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  const heddle::spec::DType dtype = heddle::bench::dtype_from(argc, argv);
  const auto cores = heddle::bench::cores_from(argc > 1 ? argv[1] : nullptr);
  std::printf("%zu threads, %s, kernels %s\n",
              cores.size(),
              heddle::spec::dtype_name(dtype).data(),
              heddle::ops::cpu::simd_kernels().name);
  std::thread([&] {
    heddle::stay_on(cores.front());
    heddle::in_caches(dtype, cores.front());
  }).join();
  for (const std::int64_t inputs : {2048, 8192}) {
    heddle::in_memory(dtype, cores, inputs);
  }
  return 0;
}
