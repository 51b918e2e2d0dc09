#include "worker/lent_memory.h"

#include <cstring>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cuda/cuda_device.h"

namespace heddle::worker {
namespace {

using emulator::EmulatedDriver;

constexpr std::size_t kLentPage = std::size_t{64} << 10U;
constexpr const char* kMachine = "devices=2,memory=4MiB,granularity=65536";

std::unique_ptr<device::CudaDevice> open(int ordinal) {
  return device::CudaDevice::create({.ordinal = ordinal,
                                     .page_bytes = kLentPage,
                                     .bytes = 2 * kLentPage,
                                     .driver = EmulatedDriver::open().value()})
      .value();
}

/// Writes a word to device memory, or reads it.
void write(device::Device& device, std::byte* at, const char* word) {
  const auto host = device.allocate(device::Place::kHost, 8).value();
  std::memcpy(host.data(), word, 8);
  const auto stream = device.create_stream().value();
  stream->copy(at, host.data(), 8);
  ASSERT_TRUE(stream->synchronize());
}
std::string read(device::Device& device, const std::byte* at) {
  const auto host = device.allocate(device::Place::kHost, 8).value();
  const auto stream = device.create_stream().value();
  stream->copy(host.data(), at, 8);
  EXPECT_TRUE(stream->synchronize());
  return reinterpret_cast<const char*>(host.data());
}

TEST(LentMemoryTest, BothGpusHaveAPageAtItsNumber) {
  const EmulatedDriver driver(kMachine);
  {
    const auto lender = open(0);
    const auto hot = open(1);
    const auto here = LentMemory::create(*lender, 8).value();
    const auto there = LentMemory::create(*hot, 8).value();
    for (const std::uint64_t page : {6U, 2U}) {
      const auto made = here->make(PageId(page));
      ASSERT_TRUE(made);
      ASSERT_TRUE(there->map(PageId(page), *made));
    }
    write(*hot, there->base() + 6 * kLentPage, "six ...");
    write(*hot, there->base() + 2 * kLentPage, "two ...");
    EXPECT_EQ(read(*lender, here->base() + 6 * kLentPage), "six ...");
    EXPECT_EQ(read(*lender, here->base() + 2 * kLentPage), "two ...");
    EXPECT_EQ(here->pages(), (std::set<PageId>{PageId(2), PageId(6)}));
  }
  EXPECT_EQ(driver.alive(), "");
}

TEST(LentMemoryTest, ALaterLifeOfTheLenderFindsItAsItWas) {
  const EmulatedDriver driver(kMachine);
  {
    const auto hot = open(1);
    const auto there = LentMemory::create(*hot, 8).value();
    Descriptor kept;
    {
      const auto lender = open(0);
      const auto here = LentMemory::create(*lender, 8).value();
      kept = here->make(PageId(3)).value();
      ASSERT_TRUE(there->map(PageId(3), kept));
      write(*lender, here->base() + 3 * kLentPage, "written");
    }
    EXPECT_EQ(read(*hot, there->base() + 3 * kLentPage), "written") << "nobody else maps it";
    const auto lender = open(0);
    const auto again = LentMemory::create(*lender, 8).value();
    ASSERT_TRUE(again->map(PageId(3), kept));
    EXPECT_EQ(read(*lender, again->base() + 3 * kLentPage), "written");
  }
  EXPECT_EQ(driver.alive(), "");
}

TEST(LentMemoryTest, APageThatWasDroppedCanBeMadeAnew) {
  const EmulatedDriver driver(kMachine);
  {
    const auto lender = open(0);
    const auto here = LentMemory::create(*lender, 8).value();
    ASSERT_TRUE(here->make(PageId(1)));
    here->drop(PageId(1));
    EXPECT_TRUE(here->pages().empty());
    EXPECT_TRUE(here->make(PageId(1)));
  }
  EXPECT_EQ(driver.alive(), "");
}

TEST(LentMemoryTest, WhatCannotBeMappedIsSaidAndLeavesNothing) {
  const EmulatedDriver driver(kMachine);
  {
    const auto lender = open(0);
    const auto here = LentMemory::create(*lender, 8).value();
    EXPECT_EQ(here->make(PageId(8)).error().code, Code::kInvalidArgument) << "beyond the last";
    const auto made = here->make(PageId(7));
    ASSERT_TRUE(made);
    EXPECT_EQ(here->make(PageId(7)).error().code, Code::kInvalidArgument) << "there already";
    EXPECT_EQ(here->map(PageId(7), *made).error().code, Code::kInvalidArgument);
    EXPECT_FALSE(here->map(PageId(1), Descriptor()));
    for (const char* const call : {"cuMemExportToShareableHandle", "cuMemMap", "cuMemSetAccess"}) {
      driver.fail(call, 1, device::kCudaNotSupported);
      EXPECT_FALSE(here->make(PageId(1))) << call;
    }
    EXPECT_EQ(here->pages(), std::set<PageId>{PageId(7)});
    EXPECT_TRUE(here->make(PageId(1)));
  }
  EXPECT_EQ(driver.alive(), "");
}

}  // namespace
}  // namespace heddle::worker
