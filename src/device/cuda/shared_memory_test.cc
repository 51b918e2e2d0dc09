#include "device/cuda/shared_memory.h"

#include <cstring>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cuda/cuda_device.h"

namespace heddle::device {
namespace {

using emulator::EmulatedDriver;

constexpr std::size_t kPage = std::size_t{2} << 20U;

std::unique_ptr<CudaDevice> open(int ordinal) {
  return CudaDevice::create(
             {.ordinal = ordinal, .bytes = kPage, .driver = EmulatedDriver::open().value()})
      .value();
}

TEST(SharedMemoryTest, OneGpusMemoryIsReadByAnother) {
  const EmulatedDriver driver("devices=2,memory=64MiB");
  {
    const auto first = open(0);
    const auto second = open(1);
    EXPECT_TRUE(first->is_linked_to(1));
    EXPECT_FALSE(first->is_linked_to(0)) << "itself";
    EXPECT_FALSE(first->is_linked_to(2)) << "none";
    auto shared = first->allocate_shared(kPage + 1).value();
    ASSERT_EQ(shared.buffer.bytes(), 2 * kPage) << "whole pages";
    const auto word = first->allocate(Place::kHost, 8).value();
    std::memcpy(word.data(), "abcdefg", 8);
    const auto from = first->create_stream().value();
    from->copy(shared.buffer.data() + kPage, word.data(), 8);
    ASSERT_TRUE(from->synchronize());

    const auto attached = second->attach_shared(shared.descriptor, shared.buffer.bytes()).value();
    shared = {};  // The other process ends: what is attached stays.
    const auto to = second->create_stream().value();
    const auto out = second->allocate(Place::kHost, 8).value();
    to->copy(second->page_address(PageId(0)), attached.data() + kPage, 8);
    to->copy(out.data(), second->page_address(PageId(0)), 8);
    ASSERT_TRUE(to->synchronize());
    EXPECT_STREQ(reinterpret_cast<const char*>(out.data()), "abcdefg");
  }
  EXPECT_EQ(driver.alive(), "");
}

TEST(SharedMemoryTest, GpusThatDoNotReachEachOtherAreNotLinked) {
  for (const char* const machine : {"devices=2,peers=0", "devices=2,peers=2"}) {
    const EmulatedDriver driver(machine);
    const auto first = open(0);
    EXPECT_FALSE(first->is_linked_to(1)) << machine;
  }
}

TEST(SharedMemoryTest, WhatFailsLeavesNothing) {
  const EmulatedDriver driver("devices=2,memory=64MiB");
  {
    const auto device = open(0);
    EXPECT_EQ(device->allocate_shared(1U << 30U).error().code, Code::kResourceExhausted);
    for (const char* const call :
         {"cuMemExportToShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
      driver.fail(call, 1, kCudaNotSupported);
      EXPECT_FALSE(device->allocate_shared(kPage)) << call;
    }
    const auto shared = device->allocate_shared(kPage).value();
    const auto other = open(1);
    driver.fail("cuMemMap", 1, kCudaNotSupported);
    EXPECT_FALSE(other->attach_shared(shared.descriptor, kPage));
    EXPECT_FALSE(other->attach_shared(Descriptor(), kPage));
  }
  EXPECT_EQ(driver.alive(), "");
}

}  // namespace
}  // namespace heddle::device
