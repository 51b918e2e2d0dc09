#include <cstdlib>
#include <memory_resource>
#include <new>

#include "base/check.h"
#include "device/cuda/cuda_device.h"
#include "ops/op_test.h"

namespace heddle::ops {
namespace {

constexpr std::size_t kPoolBytes = std::size_t{1} << 30U;

/// What the tests allocate once the device is there: pinned memory, which a GPU can use by the same
/// addresses, so that tests keep their numbers in plain vectors.
class PinnedPool {
 public:
  explicit PinnedPool(device::Buffer memory) : memory_(std::move(memory)) {}

  void* allocate(std::size_t bytes) { return blocks_.allocate(bytes, kAlign); }
  bool holds(const void* block) const {
    const auto* at = static_cast<const std::byte*>(block);
    return at >= memory_.data() && at < memory_.data() + memory_.bytes();
  }
  void free(void* block, std::size_t bytes) { blocks_.deallocate(block, bytes, kAlign); }

 private:
  static constexpr std::size_t kAlign = 16;

  device::Buffer memory_;
  std::pmr::monotonic_buffer_resource fresh_{
      memory_.data(), memory_.bytes(), std::pmr::null_memory_resource()};
  std::pmr::synchronized_pool_resource blocks_{{.largest_required_pool_block = kPoolBytes},
                                               &fresh_};
};

/// Never destroyed: what was allocated from it may be freed after everything else.
PinnedPool* pool = nullptr;  // NOLINT(*-avoid-non-const-global-variables): operator new's.

device::CudaDevice* shared_device = nullptr;  // NOLINT(*-avoid-non-const-global-variables)

/// Makes the device before the first test, so that fixtures are in pinned memory too.
class DeviceFirst final : public testing::Environment {
 public:
  void SetUp() override {
    // NOLINTBEGIN(concurrency-mt-unsafe)
    const char* named = std::getenv("HEDDLE_CUDA_DRIVER");
    if (named == nullptr) {
      ::setenv("HEDDLE_CUBLASLT", HEDDLE_CUBLASLT_EMULATOR_LIBRARY, 0);
    }
    // NOLINTEND(concurrency-mt-unsafe)
    auto driver = device::Driver::open(named != nullptr ? named : HEDDLE_CUDA_EMULATOR_LIBRARY);
    auto device = driver ? device::CudaDevice::create({.bytes = 8U << 20U, .driver = *driver})
                         : driver.error();
    if (!device) {
      ASSERT_NE(named, nullptr) << "the emulated driver: " << device.error().message;
      GTEST_SKIP() << device.error().message;
    }
    pool = new PinnedPool((*device)->allocate(device::Place::kHost, kPoolBytes).value());
    shared_device = device->release();  // For good, as the pool is.
  }
};
[[maybe_unused]] testing::Environment* const kDeviceFirst =
    testing::AddGlobalTestEnvironment(new DeviceFirst);

class CudaBackend final : public TestBackend {
 public:
  [[nodiscard]] device::Kind kind() const override { return device::Kind::kCuda; }
  [[nodiscard]] device::Stream& stream() override { return *stream_; }

 private:
  std::unique_ptr<device::Stream> stream_ = shared_device->create_stream().value();
};

/// In front of each block, how many bytes it has in all.
constexpr std::size_t kHeader = 16;

}  // namespace

std::unique_ptr<TestBackend> make_test_backend() {
  return std::make_unique<CudaBackend>();
}

}  // namespace heddle::ops

void* operator new(std::size_t bytes) {
  using heddle::ops::kHeader;
  using heddle::ops::pool;
  void* block =
      pool != nullptr ? pool->allocate(bytes + kHeader) : std::malloc(bytes + kHeader);  // NOLINT
  HEDDLE_CHECK(block != nullptr);
  *static_cast<std::size_t*>(block) = bytes + kHeader;
  return static_cast<std::byte*>(block) + kHeader;
}

void operator delete(void* data) noexcept {
  using heddle::ops::kHeader;
  using heddle::ops::pool;
  if (data == nullptr) {
    return;
  }
  void* block = static_cast<std::byte*>(data) - kHeader;
  if (pool != nullptr && pool->holds(block)) {
    pool->free(block, *static_cast<std::size_t*>(block));
  } else {
    std::free(block);  // NOLINT(*-no-malloc)
  }
}
void operator delete(void* data, std::size_t /*bytes*/) noexcept {
  operator delete(data);
}
