// Matrix products of a decoder beside what the machine could do at best, all in one run:
//
//   read      a loop that only reads, over as many bytes: the ceiling of decode
//   dot       a loop that only multiplies, in registers: the ceiling of prefill
//   oneDNN    the same product by a library that is good at it, one thread a slice
//
//   cpu_linear [CORE,CORE,...]     (default: all cores that this process may use)
//
// Memory is touched once before anything is measured. What takes longer than some milliseconds is
// timed piece by piece, and the median piece counts: on a shared machine no long stretch is quiet.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>

#ifdef HEDDLE_BENCH_DNNL
#include <dnnl.hpp>
#endif

#include "device/cpu/cpu_stream.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"
#include "ops/linear.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kReadBytes = 2LL << 30;
constexpr std::int64_t kPieceBytes = 16LL << 20;
constexpr std::int64_t kPieces = kReadBytes / kPieceBytes;

double seconds_of(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double best_of_5(const std::function<void()>& run) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    best = std::min(best, seconds_of(run));
  }
  return best;
}

/// Memory in huge pages where there are any, all of it touched.
class Memory {
 public:
  explicit Memory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    void* got = ::mmap(
        nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    huge_ = got != MAP_FAILED;
    if (!huge_) {
      got = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (got == MAP_FAILED) {
        std::perror("mmap");
        std::exit(1);
      }
      (void)::madvise(got, bytes_, MADV_HUGEPAGE);
    }
    data_ = static_cast<std::byte*>(got);
    auto* words = reinterpret_cast<std::uint32_t*>(data_);
    for (std::size_t i = 0; i < bytes_ / 4; ++i) {
      words[i] = 0x3c003c00U + static_cast<std::uint32_t>(i % 64) * 0x00010001U;  // Small bfloat16.
    }
  }
  ~Memory() { ::munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool huge() const { return huge_; }

 private:
  std::size_t bytes_;
  std::byte* data_ = nullptr;
  bool huge_ = false;
};

__attribute__((target("avx512f"))) void read_all(const std::byte* data,
                                                 std::int64_t begin,
                                                 std::int64_t end) {
  __m512i sums[4] = {};
  for (std::int64_t i = begin; i + 256 <= end; i += 256) {
    for (int k = 0; k < 4; ++k) {
      sums[k] = _mm512_xor_si512(sums[k], _mm512_loadu_si512(data + i + 64 * k));
    }
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(sums[0], sums[1]), _mm512_xor_si512(sums[2], sums[3]));
  [[maybe_unused]] volatile long long keep = _mm512_reduce_add_epi64(all);
}

constexpr std::int64_t kDots = 20'000'000;

__attribute__((target("avx512f,avx512bf16"))) void dot_all() {
  __m512 sums[24];
  for (auto& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  __m512i a = _mm512_set1_epi32(0x3c003c00);
  asm volatile("" : "+v"(a));
  for (std::int64_t i = 0; i < kDots / 24; ++i) {
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)a);
    }
  }
  for (auto& sum : sums) {
    asm volatile("" : : "v"(sum));
  }
}

struct Product {
  const char* what;
  std::int64_t outputs;
  std::int64_t inputs;
};

class Bench {
 public:
  explicit Bench(std::span<const int> cores)
      : stream_(device::ThreadPool::create(cores).value(), 0),
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
    constexpr std::int64_t kOutputs = kPieceBytes / kInputs / 2;
    double alone = 0.0;
    for (const std::int64_t tokens : {1, 2, 4, 8, 16}) {
      std::vector<double> reading;
      std::vector<double> decoding;
      for (std::int64_t i = 0; i < 3 * kPieces; ++i) {
        std::byte* piece = memory_.data() + i * 37 % kPieces * kPieceBytes;
        std::byte* other = memory_.data() + (i * 37 + kPieces / 2) % kPieces * kPieceBytes;
        reading.push_back(seconds_of([&] { read(piece); }));
        decoding.push_back(seconds_of([&] {
          linear(tokens, kOutputs, kInputs, other);
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
          kPieceBytes / 1e9 / seconds,
          100.0 * median(reading) / seconds,
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
      const double theirs = flop / best_of_5([&] { dnnl_linear(kTokens, p.outputs, p.inputs); });
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
         .weight = ops::tensor_2d<const std::byte>(weights, spec::DType::kBf16, outputs, inputs),
         .out = ops::matrix_of(reinterpret_cast<float*>(out_.data()), tokens, outputs)});
  }

  void check() {
    if (!stream_.synchronize()) {
      std::exit(1);
    }
  }

#ifdef HEDDLE_BENCH_DNNL
  void dnnl_linear(std::int64_t tokens, std::int64_t outputs, std::int64_t inputs) {
    using Tag = dnnl::memory::format_tag;
    using Type = dnnl::memory::data_type;
    stream_.pool().parallel_for(outputs, outputs / threads_, [&](auto begin, auto end, int) {
      const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
      dnnl::stream stream(engine);
      const dnnl::memory::desc x({tokens, inputs}, Type::bf16, Tag::ab);
      const dnnl::memory::desc w({inputs, end - begin}, Type::bf16, Tag::ba);
      const dnnl::memory::desc out({tokens, end - begin}, Type::f32, {outputs, 1});
      const dnnl::matmul::primitive_desc plan({x, w, out}, engine);
      dnnl::matmul(plan).execute(
          stream,
          {{DNNL_ARG_SRC, dnnl::memory(x, engine, x_.data())},
           {DNNL_ARG_WEIGHTS, dnnl::memory(w, engine, memory_.data() + begin * inputs * 2)},
           {DNNL_ARG_DST, dnnl::memory(out, engine, out_.data() + begin * 4)}});
      stream.wait();
    });
  }
#endif

  device::CpuStream stream_;
  int threads_;
  double dot_ = 0.0;
  Memory memory_{kReadBytes};
  Memory x_{512LL * 8192 * 2};
  Memory out_{512LL * 16384 * 4};
};

std::vector<int> cores_from(const char* list) {
  std::vector<int> cores;
  if (list == nullptr) {
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)::sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<std::size_t>(core), &set)) {
        cores.push_back(core);
      }
    }
    return cores;
  }
  for (const char* at = list; *at != '\0';) {
    char* end = nullptr;
    cores.push_back(static_cast<int>(std::strtol(at, &end, 10)));
    at = *end == ',' ? end + 1 : end;
    if (end == list) {
      break;
    }
  }
  return cores;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) {
  heddle::Bench(heddle::cores_from(argc > 1 ? argv[1] : nullptr)).run();
  return 0;
}
