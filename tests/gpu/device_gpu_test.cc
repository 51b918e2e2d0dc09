// The device on the machine's own driver: what the emulated one cannot tell. Skipped, with the
// reason, where there is no GPU; HEDDLE_CUDA_DRIVER may name the emulated driver, to test the test.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "cuda_emulator/probe_kernels.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"
#include "device/cuda/device_info.h"

namespace heddle::emulator {
const device::ModuleImage& probe_image();
}

namespace heddle::device {
namespace {

using emulator::AddParams;
using emulator::FillParams;
using emulator::SharedParams;
using ::testing::HasSubstr;

const KernelId kFill{&emulator::probe_image(), "heddle_probe_fill"};
const KernelId kAdd{&emulator::probe_image(), "heddle_probe_add"};
const KernelId kShared{&emulator::probe_image(), "heddle_probe_shared"};
constexpr std::int64_t kCount = std::int64_t{1} << 18U;
constexpr std::uint64_t kPages = 24;
constexpr LaunchShape kShape{.grid = {1024}, .block = {256}};

/// Skips the test where there is no driver.
class DeviceGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = Driver::open();
    if (!driver) {
      GTEST_SKIP() << driver.error().message;
    }
    driver_ = *driver;
    Arena host = Arena::create({.page_bytes = std::size_t{2} << 20U, .page_count = 8}).value();
    device_ = make(std::move(host));
    stream_ = CudaStream::create(*device_, 0).value();
  }

  std::unique_ptr<CudaDevice> make(std::optional<Arena> host = std::nullopt) {
    return CudaDevice::create({.bytes = kPages << 21U, .driver = driver_}, std::move(host)).value();
  }
  Buffer buffer(Place place) { return device_->allocate(place, kCount * 4).value(); }
  static std::int32_t* numbers(const Buffer& buffer) {
    return reinterpret_cast<std::int32_t*>(buffer.data());
  }
  static void fill(CudaStream& stream, std::byte* at, std::int32_t value) {
    stream.launch(
        kFill,
        kShape,
        FillParams{.out = reinterpret_cast<std::int32_t*>(at), .count = kCount, .value = value});
  }
  static void add(CudaStream& stream, const Buffer& to, const Buffer& from) {
    stream.launch(
        kAdd, kShape, AddParams{.out = numbers(to), .in = numbers(from), .count = kCount});
  }
  /// All numbers of a buffer on the host, if they are the same.
  static std::optional<std::int32_t> only(const Buffer& buffer) {
    const std::int32_t first = numbers(buffer)[0];
    const bool same =
        std::all_of(numbers(buffer), numbers(buffer) + kCount, [&](int x) { return x == first; });
    return same ? std::optional(first) : std::nullopt;
  }

  std::shared_ptr<const Driver> driver_{};
  std::unique_ptr<CudaDevice> device_{};
  std::unique_ptr<CudaStream> stream_{};
};

TEST_F(DeviceGpuTest, IsDescribed) {
  const std::vector<CudaDeviceInfo> devices = list_cuda_devices(*driver_).value();
  ASSERT_FALSE(devices.empty());
  for (const CudaDeviceInfo& info : devices) {
    std::printf("GPU %d: %s, %s, %s, capability %d.%d, %d multiprocessors, %llu MiB, driver %d\n",
                info.ordinal,
                info.name.c_str(),
                info.uuid.c_str(),
                info.pci.c_str(),
                info.capability_major,
                info.capability_minor,
                info.multiprocessors,
                static_cast<unsigned long long>(info.memory_bytes >> 20U),
                driver_->version());
    EXPECT_TRUE(info.virtual_memory);
    EXPECT_EQ(info.uuid.size(), 40U);
  }
  std::printf("pages of %zu bytes\n", device_->properties().page_bytes);
  const AddressRange range = device_->reserve(device_->properties().page_bytes).value();
  const PageId page(0);
  ASSERT_TRUE(device_->map(range, 0, {&page, 1}, Access::kRead));
  std::printf("memory can%s be mapped read-only\n", device_->protects() ? "" : "not");
  device_->release(range);
}

TEST_F(DeviceGpuTest, KernelsAndCopiesRunInOrder) {
  const Buffer a = buffer(Place::kDevice);
  const Buffer b = buffer(Place::kDevice);
  const Buffer out = buffer(Place::kHost);
  for (int round = 0; round < 8; ++round) {
    fill(*stream_, a.data(), round);
    fill(*stream_, b.data(), 4);
    add(*stream_, a, b);
    add(*stream_, a, b);
    stream_->copy(out.data(), a.data(), out.bytes());
    ASSERT_TRUE(stream_->synchronize());
    ASSERT_EQ(only(out), round + 8);
  }
  fill(*stream_, out.data(), 6);  // Kernels use pinned memory at the host's address.
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(only(out), 6);
}

TEST_F(DeviceGpuTest, StreamsWaitForEachOther) {
  const auto other = CudaStream::create(*device_, 0).value();
  const Buffer a = buffer(Place::kDevice);
  const Buffer out = buffer(Place::kHost);
  for (int round = 0; round < 8; ++round) {
    other->wait_for(*stream_);
    fill(*other, a.data(), round);
    stream_->wait_for(*other);
    stream_->copy(out.data(), a.data(), out.bytes());
    ASSERT_TRUE(stream_->synchronize());
    ASSERT_EQ(only(out), round);
  }
}

TEST_F(DeviceGpuTest, WindowsShowThePagesMappedNow) {
  constexpr std::size_t kWindow = 12;
  const std::size_t page_bytes = device_->properties().page_bytes;
  const Buffer out = buffer(Place::kHost);
  for (std::uint64_t page = 0; page < device_->properties().page_count; ++page) {
    fill(*stream_, device_->page_address(PageId(page)), static_cast<std::int32_t>(page) + 1);
  }
  const AddressRange range = device_->reserve(kWindow * page_bytes).value();
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE("seed 11");
  Rng rng(kSeed);
  std::array<std::int32_t, kWindow> behind{};  // Page + 1; 0 for none.
  for (int step = 0; step < 100; ++step) {
    const std::uint64_t first = rng.below(kWindow);
    const std::uint64_t count = 1 + rng.below(kWindow - first);
    ASSERT_TRUE(stream_->synchronize());
    device_->unmap(range, first * page_bytes, count * page_bytes);
    std::vector<PageId> pages;
    for (std::uint64_t i = 0; i < count; ++i) {
      pages.emplace_back(rng.below(device_->properties().page_count));
      behind.at(first + i) = static_cast<std::int32_t>(pages.back().value()) + 1;
    }
    const Access access = step % 2 == 0 ? Access::kRead : Access::kReadWrite;
    ASSERT_TRUE(device_->map(range, first * page_bytes, pages, access));
    for (std::size_t i = 0; i < kWindow; ++i) {
      if (behind.at(i) > 0) {
        stream_->copy(out.data(), range.base + i * page_bytes, 4);
        ASSERT_TRUE(stream_->synchronize());
        ASSERT_EQ(numbers(out)[0], behind.at(i));
      }
    }
  }
  device_->release(range);
}

TEST_F(DeviceGpuTest, HostPagesAreCopiedBothWays) {
  std::byte* const host = device_->host_page_address(PageId(3));
  std::memset(host, 0x5a, 2U << 20U);
  stream_->copy(device_->page_address(PageId(1)), host, 1U << 20U);
  stream_->copy(device_->host_page_address(PageId(4)), device_->page_address(PageId(1)), 1U << 20U);
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(std::memcmp(host, device_->host_page_address(PageId(4)), 1U << 20U), 0);
}

TEST_F(DeviceGpuTest, GraphsRunAgainWhileWindowsAreMapped) {
  const Buffer a = buffer(Place::kDevice);
  const Buffer b = buffer(Place::kHost);
  fill(*stream_, b.data(), 2);
  add(*stream_, a, b);
  ASSERT_TRUE(stream_->synchronize());
  ASSERT_TRUE(stream_->begin_capture());
  add(*stream_, a, b);
  // Another thread maps meanwhile, which must not end the capture.
  std::thread mapper([&] {
    const std::size_t page_bytes = device_->properties().page_bytes;
    const AddressRange range = device_->reserve(4 * page_bytes).value();
    const std::array pages = {PageId(0), PageId(5), PageId(6), PageId(2)};
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(device_->map(range, 0, pages, Access::kRead));
      device_->unmap(range, 0, range.bytes);
    }
    device_->release(range);
  });
  mapper.join();
  add(*stream_, a, b);
  const auto graph = stream_->end_capture();
  ASSERT_TRUE(graph) << graph.error().message;
  for (int i = 0; i < 10; ++i) {
    stream_->replay(**graph);
  }
  stream_->copy(b.data(), a.data(), b.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(only(b), 2 + 10 * 2 * 2);
}

TEST_F(DeviceGpuTest, LargeSharedMemoryAndScratchCanBeHad) {
  const Buffer out = buffer(Place::kHost);
  const auto most =
      static_cast<std::uint32_t>(device_->context().attribute(kAttributeSharedBytesMax));
  for (const std::uint32_t bytes : {48U << 10U, 64U << 10U, most}) {
    numbers(out)[0] = 0;
    stream_->launch(kShared,
                    {.grid = {1}, .block = {32}, .shared_bytes = bytes},
                    SharedParams{.out = numbers(out), .words = bytes / 4});
    ASSERT_TRUE(stream_->synchronize()) << bytes;
    EXPECT_EQ(numbers(out)[0], 77);
  }
  std::byte* const scratch = stream_->scratch(kCount * 4);
  ASSERT_NE(scratch, nullptr);
  fill(*stream_, scratch, 9);
  stream_->copy(out.data(), scratch, out.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(only(out), 9);
}

TEST_F(DeviceGpuTest, TooMuchMemoryIsRefusedAndAllIsGivenBack) {
  const auto refused = device_->allocate(Place::kDevice, std::size_t{1} << 44U);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  const auto larger = CudaDevice::create({.bytes = std::uint64_t{1} << 50U, .driver = driver_});
  ASSERT_FALSE(larger);
  EXPECT_EQ(larger.error().code, Code::kResourceExhausted);
  std::printf("%s\n", larger.error().message.c_str());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(make()->properties().page_count, kPages);
  }
  fill(*stream_, device_->page_address(PageId(0)), 1);
  EXPECT_TRUE(stream_->synchronize());
}

TEST_F(DeviceGpuTest, SharedMemoryIsAttachedByItsDescriptor) {
  const auto shared = device_->allocate_shared(kCount * 4).value();
  fill(*stream_, shared.buffer.data(), 7);
  ASSERT_TRUE(stream_->synchronize());
  const Buffer attached = device_->attach_shared(shared.descriptor, shared.buffer.bytes()).value();
  const Buffer out = buffer(Place::kHost);
  stream_->copy(out.data(), attached.data(), out.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(only(out), 7);
}

TEST_F(DeviceGpuTest, AnotherGpuCopiesWhatIsShared) {
  const auto gpus = list_cuda_devices(*driver_).value();
  if (gpus.size() < 2) {
    GTEST_SKIP() << "there is one GPU only";
  }
  if (!device_->is_linked_to(1)) {
    GTEST_SKIP() << "GPUs 0 and 1 have no link but PCIe: loads use one path";
  }
  const auto other =
      CudaDevice::create({.ordinal = 1, .bytes = std::uint64_t{8} << 20U, .driver = driver_})
          .value();
  const auto shared = other->allocate_shared(kCount * 4).value();
  const auto there = CudaStream::create(*other, 0).value();
  fill(*there, shared.buffer.data(), 8);
  ASSERT_TRUE(there->synchronize());
  const Buffer attached = device_->attach_shared(shared.descriptor, shared.buffer.bytes()).value();
  const Buffer out = buffer(Place::kHost);
  stream_->copy(device_->page_address(PageId(2)), attached.data(), out.bytes());
  stream_->copy(out.data(), device_->page_address(PageId(2)), out.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(only(out), 8);
}

/// In a process of its own: what `body` returns true for.
void expect_alone(const auto& body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(std::exit(body() ? 0 : 1), testing::ExitedWithCode(0), "");
}

using DeviceGpuDeathTest = DeviceGpuTest;

TEST_F(DeviceGpuDeathTest, AnIllegalAddressLosesTheDevice) {
  expect_alone([&] {
    const AddressRange nothing = device_->reserve(device_->properties().page_bytes).value();
    fill(*stream_, nothing.base, 1);
    const auto lost = stream_->synchronize();
    const auto after = device_->allocate(Place::kDevice, 8);
    return !lost && lost.error().code == Code::kUnavailable && !after &&
           lost.error().message.find("is lost") != std::string::npos &&
           after.error().message == lost.error().message;
  });
}

TEST_F(DeviceGpuDeathTest, AReadOnlyWindowIsNotWrittenByKernels) {
  expect_alone([&] {
    const AddressRange range = device_->reserve(device_->properties().page_bytes).value();
    const PageId page(3);
    const bool mapped = device_->map(range, 0, {&page, 1}, Access::kRead).has_value();
    fill(*stream_, range.base, 1);
    return mapped && (!stream_->synchronize() || !device_->protects());
  });
}

TEST_F(DeviceGpuTest, PagesAreGivenBackAndTakenAgain) {
  const DriverApi& api = device_->context().api();
  const auto free_bytes = [&] {
    std::size_t free = 0;
    std::size_t total = 0;
    device_->context().make_current();
    EXPECT_EQ(api.cuMemGetInfo_v2(&free, &total), kCudaSuccess);
    return free;
  };
  std::vector<PageId> pages;
  for (std::uint64_t page = 4; page < 20; ++page) {
    pages.emplace_back(page);
  }
  fill(*stream_, device_->page_address(PageId(3)), 5);
  ASSERT_TRUE(stream_->synchronize());
  const std::size_t before = free_bytes();
  device_->give_back(pages);
  std::printf("giving back 32 MiB frees %zu MiB\n", (free_bytes() - before) >> 20U);
  ASSERT_TRUE(device_->take_again(pages));
  fill(*stream_, device_->page_address(PageId(19)), 6);
  const Buffer out = buffer(Place::kHost);
  stream_->copy(out.data(), device_->page_address(PageId(3)), out.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(only(out), 5);
  stream_->copy(out.data(), device_->page_address(PageId(19)), out.bytes());
  ASSERT_TRUE(stream_->synchronize());
  EXPECT_EQ(only(out), 6);
}

}  // namespace
}  // namespace heddle::device
