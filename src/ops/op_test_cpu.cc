#include <cstdio>
#include <cstdlib>

#include "device/cpu/cpu_stream.h"
#include "ops/cpu/simd/choice.h"
#include "ops/op_test.h"

namespace heddle::ops {
namespace {

class CpuBackend final : public TestBackend {
 public:
  [[nodiscard]] device::Kind kind() const override { return device::Kind::kCpu; }
  [[nodiscard]] device::Stream& stream() override { return stream_; }

 private:
  device::CpuStream stream_{device::ThreadPool::create({}).value(), 0};
};

}  // namespace

std::unique_ptr<TestBackend> make_test_backend() {
  if (const auto chosen = cpu::chosen_simd_kernels(); !chosen) {
    constexpr int kSkipped = 77;  // For ctest: HEDDLE_SIMD names what this processor lacks.
    std::fprintf(stderr, "%s\n", chosen.error().message.c_str());
    std::exit(kSkipped);  // NOLINT(concurrency-mt-unsafe): there is one thread.
  }
  return std::make_unique<CpuBackend>();
}

}  // namespace heddle::ops
