// That the emulated driver refuses what a driver refuses: what it let pass would be found out on a
// GPU only.

#include <array>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "cuda_emulator/config.h"
#include "cuda_emulator/emulated_driver.h"

namespace heddle::emulator {
namespace {

using namespace heddle::device;  // NOLINT(google-build-using-namespace): the driver's names.

constexpr std::size_t kPage = std::size_t{2} << 20U;
constexpr CUmemAllocationProp kOnDevice{.type = kAllocationPinned,
                                        .requestedHandleTypes = 0,
                                        .location = {.type = kLocationDevice, .id = 0},
                                        .win32HandleMetaData = nullptr,
                                        .allocFlags = {}};
constexpr CUmemAccessDesc kRights{.location = {.type = kLocationDevice, .id = 0},
                                  .flags = kAccessReadWrite};

class EmulatorTest : public testing::Test {
 protected:
  EmulatorTest() {
    EXPECT_EQ(api_.cuDevicePrimaryCtxRetain(&context_, 0), kCudaSuccess);
    EXPECT_EQ(api_.cuCtxSetCurrent(context_), kCudaSuccess);
  }

  CUmemGenericAllocationHandle page() {
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(api_.cuMemCreate(&handle, kPage, &kOnDevice, 0), kCudaSuccess);
    return handle;
  }
  CUdeviceptr range(std::size_t pages) {
    CUdeviceptr at = 0;
    EXPECT_EQ(api_.cuMemAddressReserve(&at, pages * kPage, 0, 0, 0), kCudaSuccess);
    return at;
  }
  std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(api_.cuMemGetInfo_v2(&free, &total), kCudaSuccess);
    return free;
  }
  CUstream stream() {
    CUstream made = nullptr;
    EXPECT_EQ(api_.cuStreamCreateWithPriority(&made, kStreamNonBlocking, 0), kCudaSuccess);
    return made;
  }

  EmulatedDriver emulated_{"memory=16MiB"};
  std::shared_ptr<const Driver> driver_ = EmulatedDriver::open().value();
  const DriverApi& api_ = driver_->api();
  CUcontext context_ = nullptr;
};

TEST(EmulatorConfig, IsReadStrictly) {
  ::emulator::Config config;
  EXPECT_EQ(::emulator::read_config("devices=3,memory=1GiB,held=5MiB,vmm=0", config), "");
  EXPECT_EQ(config.devices, 3U);
  EXPECT_EQ(config.memory, std::size_t{1} << 30U);
  EXPECT_EQ(config.held, std::size_t{5} << 20U);
  EXPECT_EQ(config.vmm, 0U);
  for (const char* const wrong : {"gpus=1", "devices", "devices=x", "memory=1TB", ",devices=1"}) {
    EXPECT_NE(::emulator::read_config(wrong, config), "") << wrong;
  }
}

TEST_F(EmulatorTest, MappingsComeAndGoWhole) {
  const CUdeviceptr at = range(3);
  const std::array handles = {page(), page()};
  EXPECT_EQ(api_.cuMemMap(at + 8, kPage, 0, handles[0], 0), kCudaInvalidValue);
  EXPECT_EQ(api_.cuMemMap(at, kPage / 2, 0, handles[0], 0), kCudaInvalidValue);
  ASSERT_EQ(api_.cuMemMap(at, kPage, 0, handles[0], 0), kCudaSuccess);
  ASSERT_EQ(api_.cuMemMap(at + 2 * kPage, kPage, 0, handles[1], 0), kCudaSuccess);
  EXPECT_EQ(api_.cuMemMap(at, kPage, 0, handles[1], 0), kCudaInvalidValue) << "mapped already";
  EXPECT_EQ(api_.cuMemMap(at + 3 * kPage, kPage, 0, handles[1], 0), kCudaInvalidValue);
  EXPECT_EQ(api_.cuMemSetAccess(at, 3 * kPage, &kRights, 1), kCudaInvalidValue) << "a hole";
  EXPECT_EQ(api_.cuMemUnmap(at, 3 * kPage), kCudaInvalidValue) << "a hole";
  EXPECT_EQ(api_.cuMemUnmap(at, kPage / 2), kCudaInvalidValue) << "part of a handle";
  EXPECT_EQ(api_.cuMemAddressFree(at, 3 * kPage), kCudaInvalidValue) << "still mapped";
  EXPECT_EQ(api_.cuMemUnmap(at, kPage), kCudaSuccess);
  EXPECT_EQ(api_.cuMemUnmap(at + 2 * kPage, kPage), kCudaSuccess);
  EXPECT_EQ(api_.cuMemAddressFree(at, kPage), kCudaInvalidValue) << "not the range";
  EXPECT_EQ(api_.cuMemAddressFree(at, 3 * kPage), kCudaSuccess);
}

TEST_F(EmulatorTest, MemoryIsFreeAfterItsLastMappingAndItsHandle) {
  const std::size_t before = free_bytes();
  const CUdeviceptr at = range(1);
  const CUmemGenericAllocationHandle handle = page();
  EXPECT_EQ(free_bytes(), before - kPage);
  ASSERT_EQ(api_.cuMemMap(at, kPage, 0, handle, 0), kCudaSuccess);
  EXPECT_EQ(api_.cuMemRelease(handle), kCudaSuccess);
  EXPECT_EQ(free_bytes(), before - kPage);
  EXPECT_EQ(api_.cuMemUnmap(at, kPage), kCudaSuccess);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_EQ(api_.cuMemRelease(handle), kCudaInvalidValue);
  CUmemGenericAllocationHandle large = 0;
  EXPECT_EQ(api_.cuMemCreate(&large, 9 * kPage, &kOnDevice, 0), kCudaOutOfMemory);
  EXPECT_EQ(emulated_.alive(), "1 ranges, 1 contexts");
}

TEST_F(EmulatorTest, PinningTwiceIsRefused) {
  std::array<std::byte, 256> memory{};
  EXPECT_EQ(api_.cuMemHostRegister_v2(memory.data(), 200, 0), kCudaSuccess);
  EXPECT_EQ(api_.cuMemHostRegister_v2(memory.data() + 100, 156, 0),
            kCudaHostMemoryAlreadyRegistered);
  EXPECT_EQ(api_.cuMemHostUnregister(memory.data()), kCudaSuccess);
  EXPECT_EQ(api_.cuMemHostUnregister(memory.data()), kCudaHostMemoryNotRegistered);
}

TEST_F(EmulatorTest, AThreadWithoutAContextMayDoNothing) {
  std::thread([&] {
    CUdeviceptr at = 0;
    EXPECT_EQ(api_.cuMemAlloc_v2(&at, 8), kCudaInvalidContext);
  }).join();
}

TEST_F(EmulatorTest, WaitingSpoilsARecording) {
  const CUstream recorded = stream();
  const CUstream other = stream();
  ASSERT_EQ(api_.cuStreamBeginCapture_v2(recorded, kCaptureThreadLocal), kCudaSuccess);
  std::thread([&] {  // Of another thread it is no matter.
    EXPECT_EQ(api_.cuCtxSetCurrent(context_), kCudaSuccess);
    EXPECT_EQ(api_.cuStreamSynchronize(other), kCudaSuccess);
  })
      .join();
  EXPECT_EQ(api_.cuStreamSynchronize(other), kCudaStreamCaptureUnsupported);
  CUgraph graph = nullptr;
  EXPECT_EQ(api_.cuStreamEndCapture(recorded, &graph), kCudaStreamCaptureInvalidated);
  EXPECT_EQ(api_.cuStreamEndCapture(recorded, &graph), kCudaStreamCaptureUnmatched);
  EXPECT_EQ(api_.cuStreamSynchronize(recorded), kCudaSuccess);
}

TEST_F(EmulatorTest, CallsFailWhenAskedTo) {
  emulated_.fail("cuMemCreate", 2, kCudaNotSupported);
  page();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(api_.cuMemCreate(&handle, kPage, &kOnDevice, 0), kCudaNotSupported);
  page();
  EXPECT_EQ(emulated_.calls("cuMemCreate"), 3U);
}

}  // namespace
}  // namespace heddle::emulator
