#include "device/cuda/cuda_device.h"

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/memory_file.h"
#include "base/rng.h"
#include "cuda_emulator/emulated_driver.h"
#include "cuda_emulator/probe_kernels.h"
#include "device/cuda/cuda_stream.h"

namespace heddle::device {
namespace {

using emulator::EmulatedDriver;
using emulator::FillParams;
using ::testing::HasSubstr;

constexpr std::size_t kPage = std::size_t{2} << 20U;
const KernelId kFill{&emulator::probe_image(), "heddle_probe_fill"};

std::vector<PageId> ids(std::initializer_list<std::uint64_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

CudaDeviceOptions options_of(std::uint64_t pages) {
  return {.bytes = pages * kPage, .driver = EmulatedDriver::open().value()};
}

Arena make_arena() {
  return Arena::create({.page_bytes = 64U << 10U, .page_count = 8}).value();
}

/// A device of eight pages, the means to look at its memory, and a check that nothing is left.
class CudaDeviceTest : public testing::Test {
 protected:
  ~CudaDeviceTest() override {
    word_ = Buffer();
    stream_.reset();
    device_.reset();
    EXPECT_EQ(driver_.alive(), "");
  }

  /// The number at `address` of the device; nothing where reading it loses the device.
  std::optional<std::uint64_t> read(const std::byte* address) {
    stream_->copy(word_.data(), address, 8);
    std::uint64_t value = 0;
    const bool ok = stream_->synchronize().has_value();
    std::memcpy(&value, word_.data(), 8);
    return ok ? std::optional(value) : std::nullopt;
  }
  Result<void> write(std::byte* address, std::uint64_t value) {
    std::memcpy(word_.data(), &value, 8);
    stream_->copy(address, word_.data(), 8);
    return stream_->synchronize();
  }

  EmulatedDriver driver_{"memory=64MiB"};
  std::unique_ptr<CudaDevice> device_ = CudaDevice::create(options_of(8), make_arena()).value();
  std::unique_ptr<Stream> stream_ = device_->create_stream().value();
  Buffer word_ = device_->allocate(Place::kHost, 8).value();
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->properties().kind, Kind::kCuda);
  EXPECT_EQ(device_->properties().name, "GPU 0 (emulated GPU)");
  EXPECT_EQ(device_->properties().page_bytes, kPage);
  EXPECT_EQ(device_->properties().page_count, 8U);
  EXPECT_EQ(device_->page_address(PageId(3)) - device_->page_address(PageId(0)),
            static_cast<std::ptrdiff_t>(3 * kPage));
}

TEST_F(CudaDeviceTest, AWindowIsASecondMappingOfThePages) {
  const AddressRange range = *device_->reserve(3 * kPage);
  ASSERT_TRUE(device_->map(range, 0, ids({6, 2, 3}), Access::kRead));
  ASSERT_TRUE(write(device_->page_address(PageId(6)), 66));
  ASSERT_TRUE(write(device_->page_address(PageId(2)) + kPage - 8, 22));
  EXPECT_EQ(read(range.base), 66U);
  EXPECT_EQ(read(range.base + 2 * kPage - 8), 22U);
  EXPECT_EQ(read(range.base + 2 * kPage), 0U);
  device_->release(range);
}

TEST_F(CudaDeviceTest, AccessIsSetOnceForAllPagesAndUnmappedByRuns) {
  const AddressRange range = *device_->reserve(6 * kPage);
  const unsigned long before = driver_.calls("cuMemSetAccess");
  ASSERT_TRUE(device_->map(range, 0, ids({6, 2, 3}), Access::kRead));
  ASSERT_TRUE(device_->map(range, 4 * kPage, ids({1}), Access::kRead));
  EXPECT_EQ(driver_.calls("cuMemSetAccess"), before + 2);
  const unsigned long unmaps = driver_.calls("cuMemUnmap");
  device_->unmap(range, 0, range.bytes);
  EXPECT_EQ(driver_.calls("cuMemUnmap"), unmaps + 2);
  device_->unmap(range, 0, range.bytes);
  EXPECT_EQ(driver_.calls("cuMemUnmap"), unmaps + 2) << "nothing was left";
  device_->release(range);
}

TEST_F(CudaDeviceTest, AWindowIsMappedAnewAtItsAddress) {
  const AddressRange range = *device_->reserve(2 * kPage);
  for (std::uint64_t round = 0; round < 4; ++round) {
    ASSERT_TRUE(device_->map(range, 0, ids({round, round + 1}), Access::kReadWrite));
    ASSERT_TRUE(write(range.base + kPage, 100 + round));
    device_->unmap(range, 0, range.bytes);
    EXPECT_EQ(read(device_->page_address(PageId(round + 1))), 100 + round);
  }
  device_->release(range);
}

TEST_F(CudaDeviceTest, AReadOnlyWindowIsNotWritten) {
  const AddressRange range = *device_->reserve(kPage);
  ASSERT_TRUE(device_->map(range, 0, ids({5}), Access::kRead));
  const auto lost = write(range.base, 1);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, Code::kUnavailable);
  device_->release(range);
}

TEST_F(CudaDeviceTest, WhatIsUnmappedFaults) {
  const AddressRange range = *device_->reserve(kPage);
  ASSERT_TRUE(device_->map(range, 0, ids({5}), Access::kRead));
  EXPECT_EQ(read(range.base), 0U);
  device_->unmap(range, 0, kPage);
  EXPECT_EQ(read(range.base), std::nullopt);
  const auto after = device_->map(range, 0, ids({5}), Access::kRead);
  ASSERT_FALSE(after);
  EXPECT_THAT(after.error().message, HasSubstr("is lost"));
  device_->release(range);
}

// The rule by which pages change hands: only after the work that uses them is done. Work enqueued
// and not waited for is still to come when the page has another owner.
TEST_F(CudaDeviceTest, APageIsHandedOnAfterItsLastUsersWork) {
  const AddressRange range = *device_->reserve(kPage);
  auto* const mine = reinterpret_cast<std::int32_t*>(device_->page_address(PageId(4)));
  auto& stream = dynamic_cast<CudaStream&>(*stream_);
  const auto other = device_->create_background_stream().value();
  for (const bool waits : {false, true}) {
    stream.launch(
        kFill, {.grid = {1}, .block = {2}}, FillParams{.out = mine, .count = 2, .value = 7});
    if (waits) {
      ASSERT_TRUE(stream.synchronize());
    }
    ASSERT_TRUE(device_->map(range, 0, ids({4}), Access::kReadWrite));
    std::memset(word_.data(), 0x11, 8);
    other->copy(range.base, word_.data(), 8);
    ASSERT_TRUE(other->synchronize());
    EXPECT_EQ(read(range.base) == 0x1111111111111111U, waits);
    device_->unmap(range, 0, kPage);
  }
  device_->release(range);
}

TEST_F(CudaDeviceTest, AMapThatFailsLeavesNothing) {
  const AddressRange range = *device_->reserve(4 * kPage);
  ASSERT_TRUE(device_->map(range, 0, ids({1}), Access::kRead));
  for (const char* const call : {"cuMemMap", "cuMemSetAccess"}) {
    driver_.fail(call, call == std::string("cuMemMap") ? 3 : 1, kCudaOutOfMemory);
    const auto failed = device_->map(range, kPage, ids({2, 3, 4}), Access::kRead);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Code::kResourceExhausted);
    EXPECT_THAT(failed.error().message, HasSubstr(call));
    EXPECT_EQ(read(range.base), 0U) << "what was mapped before is as it was";
    ASSERT_TRUE(device_->map(range, kPage, ids({2, 3, 4}), Access::kRead));
    device_->unmap(range, kPage, 3 * kPage);
  }
  device_->release(range);
}

TEST_F(CudaDeviceTest, PagesAreGivenBackAndTakenAgain) {
  const auto free_bytes = [&] {
    std::size_t free = 0;
    std::size_t total = 0;
    EXPECT_EQ(device_->context().api().cuMemGetInfo_v2(&free, &total), kCudaSuccess);
    return free;
  };
  const std::size_t before = free_bytes();
  ASSERT_TRUE(write(device_->page_address(PageId(3)), 33));
  ASSERT_TRUE(write(device_->page_address(PageId(4)), 44));
  device_->give_back(ids({2, 4, 5, 7}));
  EXPECT_EQ(free_bytes(), before + 4 * kPage);
  EXPECT_EQ(read(device_->page_address(PageId(3))), 33U);
  const unsigned long accesses = driver_.calls("cuMemSetAccess");
  ASSERT_TRUE(device_->take_again(ids({4, 5, 7})));
  EXPECT_EQ(driver_.calls("cuMemSetAccess"), accesses + 2) << "once for neighbours";
  EXPECT_EQ(read(device_->page_address(PageId(4))), 0U) << "other memory";
  EXPECT_EQ(read(device_->page_address(PageId(3))), 33U);
  EXPECT_EQ(free_bytes(), before + kPage);
}

TEST_F(CudaDeviceTest, TakingAgainIsAllOrNothing) {
  device_->give_back(ids({2, 3, 4, 5}));
  for (const char* const call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    driver_.fail(call, call == std::string("cuMemSetAccess") ? 1 : 3, kCudaOutOfMemory);
    const std::string before = driver_.alive();
    const auto refused = device_->take_again(ids({2, 3, 4, 5}));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
    EXPECT_THAT(refused.error().message, HasSubstr(call));
    EXPECT_EQ(driver_.alive(), before);
  }
  EXPECT_TRUE(device_->take_again(ids({2, 3, 4, 5})));
  ASSERT_TRUE(write(device_->page_address(PageId(5)), 55));
  EXPECT_EQ(read(device_->page_address(PageId(5))), 55U);
}

TEST_F(CudaDeviceTest, RandomMapsAgreeWithATable) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    for (std::uint64_t page = 0; page < 8; ++page) {
      ASSERT_TRUE(write(device_->page_address(PageId(page)), page + 1));
    }
    const AddressRange range = *device_->reserve(6 * kPage);
    std::array<std::uint64_t, 6> behind{};  // Page + 1; 0 for none.
    for (int step = 0; step < 60; ++step) {
      const std::uint64_t first = rng.below(6);
      const std::uint64_t count = 1 + rng.below(6 - first);
      device_->unmap(range, first * kPage, count * kPage);
      std::vector<PageId> pages;
      for (std::uint64_t i = 0; i < count; ++i) {
        behind.at(first + i) = 0;
        pages.emplace_back(rng.below(8));
      }
      if (rng.below(3) > 0) {
        ASSERT_TRUE(device_->map(range, first * kPage, pages, Access::kRead));
        for (std::uint64_t i = 0; i < count; ++i) {
          behind.at(first + i) = pages[i].value() + 1;
        }
      }
      for (std::size_t i = 0; i < behind.size(); ++i) {
        if (behind.at(i) > 0) {
          ASSERT_EQ(read(range.base + i * kPage), behind.at(i));
        }
      }
    }
    device_->release(range);
  }
}

TEST_F(CudaDeviceTest, HostPagesArePinnedOnce) {
  std::byte* const host = device_->host_page_address(PageId(2));
  EXPECT_EQ(host - device_->host_page_address(PageId(0)), 128 << 10);
  std::memset(host, 0x22, 8);
  stream_->copy(device_->page_address(PageId(0)), host, 8);
  std::memset(host, 0x33, 8);  // Pinned memory is read when the copy runs, not when it is enqueued.
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(read(device_->page_address(PageId(0))), 0x3333333333333333U);
  EXPECT_EQ(driver_.calls("cuMemHostRegister_v2"), 1U);
}

TEST_F(CudaDeviceTest, MemoryOfTheProcessIsPinnedForAWhile) {
  const auto shared = MemoryFile::create("pinned", 4096).value();
  {
    const Buffer pinned = device_->pin(shared.data(), shared.bytes()).value();
    EXPECT_EQ(pinned.data(), shared.data());
    ASSERT_TRUE(write(device_->page_address(PageId(0)), 42));
    stream_->copy(shared.data(), device_->page_address(PageId(0)), 8);
    ASSERT_TRUE(stream_->synchronize());
    EXPECT_EQ(*reinterpret_cast<const std::uint64_t*>(shared.data()), 42U);
    EXPECT_FALSE(device_->pin(shared.data(), shared.bytes())) << "once";
  }
  EXPECT_TRUE(device_->pin(shared.data(), shared.bytes()));
}

TEST_F(CudaDeviceTest, BuffersAreZeroAndRunOut) {
  const Buffer buffer = device_->allocate(Place::kDevice, 4096).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 256, 0U);
  EXPECT_EQ(read(buffer.data() + 4088), 0U);
  const Buffer host = device_->allocate(Place::kHost, 100).value();
  EXPECT_EQ(host.data()[99], std::byte{0});
  const auto refused = device_->allocate(Place::kDevice, 1U << 30U);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_THAT(refused.error().message,
              HasSubstr("GPU 0 (emulated GPU): allocate 1073741824 bytes"));
}

TEST_F(CudaDeviceTest, TooLargeARangeIsAnError) {
  const auto refused = device_->reserve(std::size_t{1} << 50U);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

TEST_F(CudaDeviceTest, TwoThreadsUseStreamsOfTheirOwn) {
  const auto work = [&](std::uint64_t first) {
    const auto stream = device_->create_stream().value();
    const Buffer host = device_->allocate(Place::kHost, kPage).value();
    const AddressRange range = *device_->reserve(kPage);
    for (std::uint64_t round = 0; round < 20; ++round) {
      const PageId page(first + round % 4);
      ASSERT_TRUE(device_->map(range, 0, {&page, 1}, Access::kReadWrite));
      std::memset(host.data(), static_cast<int>(round + first), kPage);
      stream->copy(range.base, host.data(), kPage);
      stream->copy(host.data(), device_->page_address(page), kPage);
      ASSERT_TRUE(stream->synchronize());
      ASSERT_EQ(host.data()[kPage - 1], static_cast<std::byte>(round + first));
      device_->unmap(range, 0, kPage);
    }
    device_->release(range);
  };
  std::thread other(work, 4);
  work(0);
  other.join();
}

TEST_F(CudaDeviceTest, UncorrectableMemoryErrorsLoseIt) {
  driver_.fail("cuMemcpyAsync", 1, kCudaEccUncorrectable);
  EXPECT_EQ(read(device_->page_address(PageId(0))), std::nullopt);
  const auto range = device_->reserve(kPage);
  ASSERT_FALSE(range);
  EXPECT_EQ(range.error().code, Code::kUnavailable);
  EXPECT_THAT(range.error().message, HasSubstr("CUDA_ERROR_ECC_UNCORRECTABLE"));
}

TEST_F(CudaDeviceTest, AFailingKernelLosesItsDeviceOnly) {
  stream_.reset();
  word_ = Buffer();
  device_.reset();
  const EmulatedDriver two("devices=2,memory=64MiB");
  CudaDeviceOptions options = options_of(2);
  const auto first = CudaDevice::create(options).value();
  options.ordinal = 1;
  const auto second = CudaDevice::create(options).value();
  const auto stream = CudaStream::create(*first, 0).value();
  const auto other = CudaStream::create(*second, 0).value();
  two.fail("kernel", 1, kCudaLaunchFailed);
  const Buffer out = first->allocate(Place::kDevice, 64).value();
  stream->launch(kFill,
                 {.grid = {1}, .block = {16}},
                 FillParams{.out = reinterpret_cast<std::int32_t*>(out.data()), .count = 16});
  EXPECT_FALSE(stream->synchronize());
  const Buffer elsewhere = second->allocate(Place::kHost, 64).value();
  other->launch(
      kFill,
      {.grid = {1}, .block = {16}},
      FillParams{
          .out = reinterpret_cast<std::int32_t*>(elsewhere.data()), .count = 16, .value = 3});
  EXPECT_TRUE(other->synchronize());
  EXPECT_EQ(elsewhere.data()[60], std::byte{3});
}

TEST_F(CudaDeviceTest, AFirstLaunchDoesNotWaitForAMapping) {
  const AddressRange range = *device_->reserve(2 * kPage);
  driver_.hold("cuMemMap");
  std::thread mapper([&] { EXPECT_TRUE(device_->map(range, 0, ids({1, 2}), Access::kRead)); });
  driver_.wait_held("cuMemMap");
  // The mapping goes on only when all this has returned.
  EXPECT_TRUE(device_->function(kFill, 64U << 10U));
  EXPECT_TRUE(device_->allocate(Place::kDevice, 64));
  const auto other = device_->reserve(kPage);
  ASSERT_TRUE(other);
  device_->release(*other);
  driver_.let_go("cuMemMap");
  mapper.join();
  device_->release(range);
}

using CudaDeviceDeathTest = CudaDeviceTest;

TEST_F(CudaDeviceDeathTest, BreakingTheContractIsABug) {
  const AddressRange range = *device_->reserve(2 * kPage);
  ASSERT_TRUE(device_->map(range, 0, ids({1}), Access::kRead));
  EXPECT_DEATH((void)device_->map(range, 0, ids({2}), Access::kRead), "kNothing");
  EXPECT_DEATH((void)device_->map(range, kPage, ids({2, 3}), Access::kRead), "range.bytes");
  EXPECT_DEATH((void)device_->map(range, kPage, ids({8}), Access::kRead), "page_count");
  EXPECT_DEATH((void)device_->take_again(ids({3})), "handles_");
  EXPECT_DEATH(device_->release({.base = range.base + kPage, .bytes = kPage}), "found");
  device_->release(range);
}

/// What a device is made of, and the machine that refuses it.
struct Refusal {
  std::string machine;
  CudaDeviceOptions options;
  std::string failing_call;
  unsigned nth = 1;
  Code code = Code::kResourceExhausted;
  std::string says;
};

TEST(CudaDeviceCreate, SaysWhyNotAndLeavesNothing) {
  constexpr std::uint64_t kMiB = 1U << 20U;
  const std::vector<Refusal> refusals = {
      {"vmm=0", {}, "", 1, Code::kFailedPrecondition, "no virtual memory management"},
      {"memory=64MiB,held=60MiB",
       {.bytes = 8 * kMiB},
       "",
       1,
       Code::kResourceExhausted,
       "8 MiB for pages of 2 MiB cannot be had: of its 64 MiB, 4 MiB are free, and others hold 60"},
      {"memory=64MiB,held=63MiB", {}, "", 1, Code::kResourceExhausted, "cannot be had"},
      {"", {.page_bytes = 64U << 10U}, "", 1, Code::kInvalidArgument, "at least 2097152"},
      {"", {.ordinal = 1}, "", 1, Code::kNotFound, "no GPU 1"},
      {"",
       {.bytes = 8 * kMiB},
       "cuMemCreate",
       3,
       Code::kResourceExhausted,
       "take 8 MiB of its memory, of which 4 MiB could be had"},
      {"", {.bytes = 8 * kMiB}, "cuMemMap", 2, Code::kResourceExhausted, "cuMemMap"},
      {"", {.bytes = 8 * kMiB}, "cuMemSetAccess", 1, Code::kResourceExhausted, "cuMemSetAccess"},
      {"", {.bytes = 8 * kMiB}, "cuMemHostRegister_v2", 1, Code::kResourceExhausted, "pin 0 MiB"},
      {"", {}, "cuDevicePrimaryCtxRetain", 1, Code::kResourceExhausted, "create a context"},
      {"",
       {.bytes = 8 * kMiB},
       "cuStreamCreateWithPriority",
       1,
       Code::kResourceExhausted,
       "stream"},
  };
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.machine + " " + refusal.failing_call + " " + refusal.says);
    const EmulatedDriver emulated(refusal.machine);
    CudaDeviceOptions options = refusal.options;
    options.driver = EmulatedDriver::open().value();
    if (!refusal.failing_call.empty()) {
      emulated.fail(refusal.failing_call.c_str(), refusal.nth, kCudaOutOfMemory);
    }
    const auto device = CudaDevice::create(options, make_arena());
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, refusal.code);
    EXPECT_THAT(device.error().message, HasSubstr(refusal.says));
    EXPECT_EQ(emulated.alive(), "");
  }
}

TEST(CudaDeviceCreate, TheArenaIsPinnedInPiecesThatTheDriverTakes) {
  const EmulatedDriver emulated("memory=64MiB,pin_max=128KiB");
  CudaDeviceOptions options = options_of(2);
  EXPECT_FALSE(CudaDevice::create(options, make_arena())) << "at once it is too much";
  EXPECT_EQ(emulated.alive(), "");
  options.pin_bytes_max = 128U << 10U;
  const unsigned long before = emulated.calls("cuMemHostRegister_v2");
  {
    const auto device = CudaDevice::create(options, make_arena()).value();
    EXPECT_EQ(emulated.calls("cuMemHostRegister_v2"), before + 4);
    const auto stream = device->create_stream().value();
    for (std::uint64_t page = 0; page < 8; ++page) {
      stream->copy(
          device->page_address(PageId(0)), device->host_page_address(PageId(page)), 64U << 10U);
    }
    EXPECT_TRUE(stream->synchronize());
    EXPECT_EQ(emulated.calls("copy in"), 8U) << "no page lies in two pieces";
  }
  EXPECT_EQ(emulated.alive(), "");
  emulated.fail("cuMemHostRegister_v2", 3, kCudaOutOfMemory);
  const auto refused = CudaDevice::create(options, make_arena());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("of which 0 MiB were pinned"));
  EXPECT_EQ(emulated.alive(), "") << "what was pinned is pinned no more";
}

TEST(CudaDeviceCreate, WhatCannotBeUnmappedAtOnceIsUnmappedPageByPage) {
  const EmulatedDriver emulated("memory=64MiB,unmap_many=0");
  const auto device = CudaDevice::create(options_of(4)).value();
  const AddressRange range = *device->reserve(3 * kPage);
  ASSERT_TRUE(device->map(range, 0, ids({0, 1, 2}), Access::kRead));
  device->unmap(range, 0, range.bytes);
  EXPECT_TRUE(device->map(range, 0, ids({1, 2, 3}), Access::kRead));
  device->release(range);
}

TEST(CudaDeviceCreate, APageThatIsNotUnmappedIsTriedAgainBeforeItsPlaceIsMapped) {
  const EmulatedDriver emulated("memory=64MiB,unmap_many=0");
  const auto device = CudaDevice::create(options_of(4)).value();
  const AddressRange range = *device->reserve(3 * kPage);
  ASSERT_TRUE(device->map(range, 0, ids({0, 1, 2}), Access::kRead));
  emulated.fail("cuMemUnmap", 3, kCudaInvalidValue);  // The second of the pages.
  device->unmap(range, 0, range.bytes);
  EXPECT_TRUE(device->map(range, 0, ids({3}), Access::kRead)) << "what is beside it is free";
  EXPECT_TRUE(device->map(range, kPage, ids({1, 2}), Access::kRead));
  device->release(range);
}

TEST(CudaDeviceCreate, TakesAFractionOfWhatIsFree) {
  const EmulatedDriver emulated("memory=64MiB,held=24MiB");
  const auto device =
      CudaDevice::create({.fraction = 0.5, .driver = EmulatedDriver::open().value()}).value();
  EXPECT_EQ(device->properties().page_count, 10U);
}

TEST(CudaDeviceCreate, TakesOnlyThePagesThatAreToBeThere) {
  const EmulatedDriver emulated("memory=64MiB,held=58MiB");
  CudaDeviceOptions options = options_of(8);
  EXPECT_FALSE(CudaDevice::create(options));
  options.only = ids({1, 5});
  const auto device = CudaDevice::create(options).value();
  EXPECT_EQ(device->properties().page_count, 8U);
  const AddressRange range = *device->reserve(2 * kPage);
  EXPECT_TRUE(device->map(range, 0, ids({5, 1}), Access::kRead));
  EXPECT_FALSE(device->take_again(ids({2, 3})));
  EXPECT_TRUE(device->take_again(ids({2})));
  device->release(range);
}

TEST(CudaDeviceCreate, LargerPagesAreMultiplesOfTheDevices) {
  const EmulatedDriver emulated("memory=64MiB,granularity=64KiB");
  const auto device =
      CudaDevice::create(
          {.page_bytes = 256U << 10U, .bytes = 1U << 20U, .driver = EmulatedDriver::open().value()})
          .value();
  EXPECT_EQ(device->properties().page_count, 4U);
}

TEST(CudaDeviceCreate, WorksWhereMemoryCannotBeReadOnly) {
  const EmulatedDriver emulated("memory=64MiB,read_only=0");
  const auto device = CudaDevice::create(options_of(2)).value();
  const AddressRange range = *device->reserve(2 * kPage);
  EXPECT_TRUE(device->protects());
  EXPECT_TRUE(device->map(range, 0, ids({1}), Access::kRead));
  EXPECT_FALSE(device->protects());
  device->unmap(range, 0, kPage);
  EXPECT_TRUE(device->map(range, 0, ids({0, 1}), Access::kRead));
  device->release(range);
}

}  // namespace
}  // namespace heddle::device
