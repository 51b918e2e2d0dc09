#include "device/cuda/device_info.h"

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"

namespace heddle::device {
namespace {

TEST(CudaDeviceInfo, DescribesEachGpu) {
  const emulator::EmulatedDriver emulated("devices=2,memory=64MiB,capability=89,vmm=0");
  const auto driver = emulator::EmulatedDriver::open().value();
  const auto devices = list_cuda_devices(*driver).value();
  ASSERT_EQ(devices.size(), 2U);
  EXPECT_EQ(devices[1].ordinal, 1);
  EXPECT_EQ(devices[1].name, "emulated GPU");
  EXPECT_EQ(devices[1].uuid, "GPU-e0000000-0000-0000-0000-000000000001");
  EXPECT_EQ(devices[1].pci, "0000:02:00.0");
  EXPECT_EQ(devices[1].capability_major, 8);
  EXPECT_EQ(devices[1].capability_minor, 9);
  EXPECT_GT(devices[1].multiprocessors, 0);
  EXPECT_EQ(devices[1].memory_bytes, 64U << 20U);
  EXPECT_FALSE(devices[1].virtual_memory);
}

TEST(CudaDeviceInfo, SaysWhatItLacksToWorkWithOthers) {
  const auto of = [](const char* machine) {
    const emulator::EmulatedDriver emulated(machine);
    return list_cuda_devices(*emulator::EmulatedDriver::open().value()).value();
  };
  const auto whole = of("devices=3");
  EXPECT_TRUE(whole[1].flags);
  EXPECT_TRUE(whole[1].shares);
  EXPECT_EQ(whole[1].peers, (std::vector<int>{0, 2}));
  EXPECT_FALSE(of("devices=2,flags=0")[0].flags);
  EXPECT_TRUE(of("devices=2,peers=0")[0].peers.empty());
}

TEST(CudaDeviceInfo, NamesTheGpuThatDoesNotAnswer) {
  const emulator::EmulatedDriver emulated("devices=2");
  const auto driver = emulator::EmulatedDriver::open().value();
  emulated.fail("cuDeviceGetUuid_v2", 2, kCudaUnknown);
  const auto devices = list_cuda_devices(*driver);
  ASSERT_FALSE(devices);
  EXPECT_EQ(devices.error().code, Code::kUnavailable);
  EXPECT_NE(devices.error().message.find("GPU 1"), std::string::npos);
}

}  // namespace
}  // namespace heddle::device
