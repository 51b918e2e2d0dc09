#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/test_places.h"
#include "device/cuda/cuda_device.h"
#include "ops/op_test.h"

namespace heddle::ops {
namespace {

constexpr std::size_t kPoolBytes = std::size_t{192} << 20U;

/// What the tests allocate once the device is there: pinned memory, which a GPU can use by the same
/// addresses, so that tests keep their numbers in plain vectors. Sizes are rounded up to powers of
/// two, and what was freed is given out again.
class PinnedPool {
 public:
  explicit PinnedPool(device::Buffer memory) : memory_(std::move(memory)) {}

  void* allocate(std::size_t bytes) {
    const std::size_t size = std::bit_ceil(std::max(bytes, sizeof(Free)));
    const std::lock_guard lock(mutex_);
    Free*& first = free_of(size);
    if (first != nullptr) {
      return std::exchange(first, first->next);
    }
    HEDDLE_CHECK(size <= memory_.bytes() - used_);
    used_ += size;
    return memory_.data() + used_ - size;
  }
  [[nodiscard]] bool holds(const void* block) const {
    const auto* at = static_cast<const std::byte*>(block);
    return at >= memory_.data() && at < memory_.data() + memory_.bytes();
  }
  void free(void* block, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    Free*& first = free_of(std::bit_ceil(std::max(bytes, sizeof(Free))));
    first = new (block) Free{first};
  }

 private:
  struct alignas(16) Free {
    Free* next;
  };
  Free*& free_of(std::size_t size) { return free_[static_cast<std::size_t>(std::bit_width(size))]; }

  device::Buffer memory_;
  std::mutex mutex_{};
  std::size_t used_ = 0;
  std::array<Free*, 64> free_{};  ///< By the width of the size.
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
      ::setenv("HEDDLE_CUBLASLT", places::kCublasltEmulator, 0);
    }
    // NOLINTEND(concurrency-mt-unsafe)
    auto driver = device::Driver::open(named != nullptr ? named : places::kCudaEmulator);
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
