#pragma once

// What a machine can do at best, for benchmarks that say how near to it heddle comes.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <immintrin.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#ifdef HEDDLE_BENCH_DNNL
#include <dnnl.hpp>
#endif

#include "device/cpu/thread_pool.h"
#include "spec/dtype.h"

namespace heddle::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_of(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The best of several runs, by the clock and by the time that processors gave to this process:
/// the latter leaves out what others on the machine took away, and what threads waited for each
/// other asleep.
struct Best {
  double seconds = 1e9;
  double cpu_seconds = 1e9;

  void take(const std::function<void()>& run) {
    const double before = cpu_now();
    const double elapsed = seconds_of(run);
    seconds = std::min(seconds, elapsed);
    cpu_seconds = std::min(cpu_seconds, cpu_now() - before);
  }

  static double cpu_now() {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
};

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline double best_of_5(const std::function<void()>& run) {
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
      words[i] = 0x3c3c3c3cU;  // Small bfloat16; no scale of blocks is subnormal.
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

/// Reads bytes [begin, end) and does next to nothing with them.
__attribute__((target("avx512f"))) inline void read_all(const std::byte* data,
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

/// 64 `dots` floating-point operations by the dot product, all in registers.
__attribute__((target("avx512f,avx512bf16"))) inline void dot_all(std::int64_t dots = kDots) {
  __m512 sums[24];
  for (auto& sum : sums) {
    sum = _mm512_setzero_ps();
  }
  __m512i a = _mm512_set1_epi32(0x3c003c00);
  asm volatile("" : "+v"(a));
  for (std::int64_t i = 0; i < dots / 24; ++i) {
    for (auto& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)a);
    }
  }
  for (auto& sum : sums) {
    asm volatile("" : : "v"(sum));
  }
}

inline std::vector<int> cores_from(const char* list) {
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

/// Takes "bfloat16", "int8" or a type of blocks ("Q4_1"), if that is the first argument, off the
/// arguments; bfloat16 otherwise.
inline spec::DType dtype_from(int& argc, char**& argv) {
  using enum spec::DType;
  for (const spec::DType dtype :
       {kBf16, kI8, kQ80, kQ40, kQ41, kQ50, kQ51, kQ4K, kQ5K, kQ6K, kMxfp4, kF8}) {
    if (argc > 1 && spec::dtype_name(dtype) == argv[1]) {
      --argc;
      ++argv;
      return dtype;
    }
  }
  return spec::DType::kBf16;
}

#ifdef HEDDLE_BENCH_DNNL
/// out[t][o] = x[t] . weights[o] of bfloat16 by oneDNN, each of the pool's threads a slice.
inline void dnnl_linear(device::ThreadPool& pool,
                        std::int64_t tokens,
                        std::int64_t outputs,
                        std::int64_t inputs,
                        std::byte* x_data,
                        std::byte* weights,
                        std::byte* out_data) {
  using Tag = dnnl::memory::format_tag;
  using Type = dnnl::memory::data_type;
  pool.parallel_for(outputs, outputs / pool.size(), [&](auto begin, auto end, int) {
    const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    const dnnl::memory::desc x({tokens, inputs}, Type::bf16, Tag::ab);
    const dnnl::memory::desc w({inputs, end - begin}, Type::bf16, Tag::ba);
    const dnnl::memory::desc out({tokens, end - begin}, Type::f32, {outputs, 1});
    const dnnl::matmul::primitive_desc plan({x, w, out}, engine);
    dnnl::matmul(plan).execute(
        stream,
        {{DNNL_ARG_SRC, dnnl::memory(x, engine, x_data)},
         {DNNL_ARG_WEIGHTS, dnnl::memory(w, engine, weights + begin * inputs * 2)},
         {DNNL_ARG_DST, dnnl::memory(out, engine, out_data + begin * 4)}});
    stream.wait();
  });
}
#endif

}  // namespace heddle::bench
