#include "device/cpu/cpu_stream.h"
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
  return std::make_unique<CpuBackend>();
}

}  // namespace heddle::ops
