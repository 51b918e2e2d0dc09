// Matrix products of a decoder beside what the machine could do at best, all in one run:
//
//   read      a loop that only reads, over as many bytes: the ceiling of decode
//   dot       a loop that only multiplies, in registers: the ceiling of prefill
//   oneDNN    the same product by a library that is good at it, one thread a slice
//
//   cpu_linear [bfloat16|int8|Q8_0|Q4_0|...] [CORE,CORE,...]     (default: all cores that this
//   process may use)
//
// oneDNN's products are those of bfloat16.
//
// Memory is touched once before anything is measured. What takes longer than some milliseconds is
// timed piece by piece, and the median piece counts: on a shared machine no long stretch is quiet.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "bench/cpu_ceilings.h"
#include "device/cpu/cpu_stream.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"
#include "ops/linear.h"
#include "spec/block_panels.h"

namespace heddle {
namespace {

using namespace bench;

constexpr std::int64_t kReadBytes = 2LL << 30;
constexpr std::int64_t kPieceBytes = 16LL << 20;
constexpr std::int64_t kPieces = kReadBytes / kPieceBytes;

struct Product {
  const char* what;
  std::int64_t outputs;
  std::int64_t inputs;
};

class Bench {
 public:
  Bench(spec::DType dtype, std::span<const int> cores)
      : dtype_(dtype),
        stream_(device::ThreadPool::create(cores).value(), 0),
        threads_(static_cast<int>(cores.size())) {}

  void run() {
    std::printf("%d threads, %s, kernels %s\n",
                threads_,
                memory_.huge() ? "huge pages" : "no huge pages kept (transparent ones asked for)",
                ops::cpu::simd_kernels().name);
    dot_ = 0.0;
    if (__builtin_cpu_supports("avx512bf16")) {
      dot_ = 64e-9 * kDots * threads_ / best_of_5([&] {
               stream_.pool().parallel_for(threads_, 1, [&](auto, auto, int) { dot_all(); });
             });
      std::printf("dot         %8.1f GFLOP/s\n", dot_);
    }
    decode();
    prefill();
  }

 private:
  /// Weights as a step of decode reads them, piece after piece of 2 GiB, in turns with a loop that
  /// only reads.
  void decode() {
    constexpr std::int64_t kInputs = 2048;
    const std::int64_t outputs = kPieceBytes / spec::row_bytes(dtype_, kInputs) / 16 * 16;
    const std::int64_t bytes = outputs * spec::row_bytes(dtype_, kInputs);
    double alone = 0.0;
    for (const std::int64_t tokens : {1, 2, 4, 8, 16}) {
      std::vector<double> reading;
      std::vector<double> decoding;
      for (std::int64_t i = 0; i < 3 * kPieces; ++i) {
        std::byte* piece = memory_.data() + i * 37 % kPieces * kPieceBytes;
        std::byte* other = memory_.data() + (i * 37 + kPieces / 2) % kPieces * kPieceBytes;
        reading.push_back(seconds_of([&] { read(piece); }));
        decoding.push_back(seconds_of([&] {
          linear(tokens, outputs, kInputs, other);
          check();
        }));
      }
      const double seconds = median(decoding);
      alone = tokens == 1 ? seconds : alone;
      std::printf(
          "decode %3lld  %6.1f GB/s of weights = %5.1f %% of read (%.1f GB/s), %5.2f times the "
          "tokens "
          "of 1\n",
          static_cast<long long>(tokens),
          static_cast<double>(bytes) / 1e9 / seconds,
          100.0 * static_cast<double>(bytes) / static_cast<double>(kPieceBytes) * median(reading) /
              seconds,
          kPieceBytes / 1e9 / median(reading),
          alone / seconds * static_cast<double>(tokens));
    }
  }

  void read(const std::byte* piece) {
    stream_.pool().parallel_for(
        kPieceBytes, 1 << 18, [&](auto begin, auto end, int) { read_all(piece, begin, end); });
  }

  void prefill() {
    constexpr std::int64_t kTokens = 512;
    for (const Product& p : {Product{"qkv", 3072, 2048},
                             Product{"out", 2048, 2048},
                             Product{"gate_up", 16384, 2048},
                             Product{"down", 2048, 8192}}) {
      const double flop = 2e-9 * static_cast<double>(kTokens * p.outputs * p.inputs);
      const double ours = flop / best_of_5([&] {
                            linear(kTokens, p.outputs, p.inputs, memory_.data());
                            check();
                          });
      std::printf("prefill %-8s 512 x %5lld x %4lld  ours %7.1f GFLOP/s = %5.1f %% of dot",
                  p.what,
                  static_cast<long long>(p.outputs),
                  static_cast<long long>(p.inputs),
                  ours,
                  dot_ > 0.0 ? 100.0 * ours / dot_ : 0.0);
#ifdef HEDDLE_BENCH_DNNL
      const double theirs = flop / best_of_5([&] {
                              dnnl_linear(stream_.pool(),
                                          kTokens,
                                          p.outputs,
                                          p.inputs,
                                          x_.data(),
                                          memory_.data(),
                                          out_.data());
                            });
      std::printf(", oneDNN %7.1f = %5.1f %%", theirs, dot_ > 0.0 ? 100.0 * theirs / dot_ : 0.0);
#endif
      std::printf("\n");
    }
  }

  void linear(std::int64_t tokens, std::int64_t outputs, std::int64_t inputs, std::byte* weights) {
    ops::OpContext context{.stream = stream_, .kernels = ops::cpu::cpu_kernels()};
    ops::linear(
        context,
        {.x = ops::tensor_2d<const std::byte>(x_.data(), spec::DType::kBf16, tokens, inputs),
         .weight = ops::tensor_2d<const std::byte>(weights, dtype_, outputs, inputs),
         .scale = dtype_ == spec::DType::kI8 ? ops::vector_of<const float>(scale_.data(), outputs)
                                             : ops::ConstTensorRef{},
         .out = ops::matrix_of(reinterpret_cast<float*>(out_.data()), tokens, outputs)});
  }

  void check() {
    if (!stream_.synchronize()) {
      std::exit(1);
    }
  }

  spec::DType dtype_;
  device::CpuStream stream_;
  int threads_;
  double dot_ = 0.0;
  Memory memory_{kReadBytes};
  Memory x_{512LL * 8192 * 2};
  Memory out_{512LL * 16384 * 4};
  std::vector<float> scale_ = std::vector<float>(16384, 1e-3F);  ///< Of int8.
};

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  const heddle::spec::DType dtype = heddle::bench::dtype_from(argc, argv);
  heddle::Bench(dtype, heddle::bench::cores_from(argc > 1 ? argv[1] : nullptr)).run();
  return 0;
}
