#include "device/registry.h"

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"

namespace heddle::device {
namespace {

Arena make_arena() {
  return Arena::create({.page_bytes = 64U << 10U, .page_count = 4}).value();
}

TEST(Registry, MakesADeviceOfEachKind) {
  const auto cpu = make_device(CpuDeviceOptions{}, make_arena()).value();
  EXPECT_EQ(cpu->properties().kind, Kind::kCpu);
  EXPECT_EQ(cpu->properties().page_count, 4U);

  const emulator::EmulatedDriver emulated("memory=64MiB");
  const auto gpu =
      make_device(
          CudaDeviceOptions{.bytes = 8U << 20U, .driver = emulator::EmulatedDriver::open().value()},
          make_arena())
          .value();
  EXPECT_EQ(gpu->properties().kind, Kind::kCuda);
  EXPECT_EQ(gpu->properties().page_count, 4U) << "of 2 MiB";
  EXPECT_EQ(gpu->host_page_address(PageId(1)) - gpu->host_page_address(PageId(0)), 64 << 10);
}

TEST(Registry, SaysWhatADeviceLacks) {
  const emulator::EmulatedDriver emulated("devices=1");
  const auto none = make_device(
      CudaDeviceOptions{.ordinal = 3, .driver = emulator::EmulatedDriver::open().value()},
      make_arena());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_EQ(none.error().message, "there is no GPU 3: the CUDA driver sees 1");
}

}  // namespace
}  // namespace heddle::device
