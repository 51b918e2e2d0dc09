#include "device/cpu/cpu_device.h"

#include <array>
#include <cstring>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::device {
namespace {

constexpr std::size_t kPage = std::size_t{16} << 10U;

CpuDevice make_device(std::uint64_t pages, std::size_t page_bytes = kPage) {
  return {Arena::create({.page_bytes = page_bytes, .page_count = pages}).value(), {}};
}

std::vector<PageId> ids(std::initializer_list<std::uint64_t> numbers) {
  return {numbers.begin(), numbers.end()};
}

/// Mappings of this process that lie within a range.
std::size_t mappings_in(AddressRange range) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    const std::uint64_t start = std::stoull(line, nullptr, 16);
    const auto base = reinterpret_cast<std::uint64_t>(range.base);
    count += start >= base && start < base + range.bytes ? 1U : 0U;
  }
  return count;
}

TEST(CpuDevice, AWindowIsASecondMappingOfThePages) {
  CpuDevice device = make_device(8);
  const AddressRange range = *device.reserve(3 * kPage);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(range.base) % kPage, 0U);
  ASSERT_TRUE(device.map(range, 0, ids({6, 2, 3}), Access::kRead));
  std::memset(device.page_address(PageId(2)), 0x22, kPage);
  std::memset(device.page_address(PageId(6)), 0x66, kPage);
  EXPECT_EQ(range.base[0], std::byte{0x66});
  EXPECT_EQ(range.base[kPage - 1], std::byte{0x66});
  EXPECT_EQ(range.base[kPage], std::byte{0x22});
  EXPECT_EQ(range.base[2 * kPage], std::byte{0});
  device.release(range);
}

TEST(CpuDevice, AdjacentPagesAreOneMapping) {
  CpuDevice device = make_device(16);
  const AddressRange range = *device.reserve(8 * kPage);
  ASSERT_TRUE(device.map(range, 0, ids({4, 5, 6, 7, 1, 2, 9, 0}), Access::kRead));
  EXPECT_EQ(mappings_in(range), 4U);
  device.unmap(range, 0, range.bytes);
  EXPECT_EQ(mappings_in(range), 1U) << "the addresses stay reserved";
  device.release(range);
}

TEST(CpuDevice, AWritableWindowWritesThePages) {
  CpuDevice device = make_device(4);
  const AddressRange range = *device.reserve(2 * kPage);
  ASSERT_TRUE(device.map(range, kPage, ids({3}), Access::kReadWrite));
  range.base[kPage + 1] = std::byte{0x77};
  EXPECT_EQ(device.page_address(PageId(3))[1], std::byte{0x77});
  device.release(range);
}

TEST(CpuDeviceDeathTest, WindowsFaultWhereNothingMayBeTouched) {
  CpuDevice device = make_device(4);
  const AddressRange range = *device.reserve(3 * kPage);
  ASSERT_TRUE(device.map(range, 0, ids({1, 2}), Access::kRead));
  device.unmap(range, kPage, kPage);
  auto* const base = reinterpret_cast<volatile unsigned char*>(range.base);
  EXPECT_EQ(base[0] + 0, 0);
  EXPECT_DEATH(base[0] = 1, "") << "read-only";
  EXPECT_DEATH((void)base[kPage], "") << "unmapped";
  EXPECT_DEATH((void)base[2 * kPage], "") << "never mapped";
  EXPECT_DEATH((void)device.map(range, kPage, ids({1, 2, 3}), Access::kRead), "range.bytes");
  EXPECT_DEATH((void)device.map(range, 0, ids({4}), Access::kRead), "page_count");
}

TEST(CpuDevice, RandomMapsAgreeWithATable) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    CpuDevice device = make_device(32);
    for (std::uint64_t page = 0; page < 32; ++page) {
      device.page_address(PageId(page))[0] = static_cast<std::byte>(page + 1);
    }
    const AddressRange range = *device.reserve(16 * kPage);
    std::array<std::uint64_t, 16> behind{};  // Page + 1; 0 for none.
    for (int step = 0; step < 300; ++step) {
      const std::uint64_t first = rng.below(16);
      const std::uint64_t count = 1 + rng.below(16 - first);
      device.unmap(range, first * kPage, count * kPage);
      std::vector<PageId> pages;
      for (std::uint64_t i = 0; i < count; ++i) {
        behind.at(first + i) = 0;
        pages.emplace_back(i > 0 && rng.below(2) == 0 && pages.back().value() < 31
                               ? pages.back().value() + 1
                               : rng.below(32));
      }
      if (rng.below(3) > 0) {
        ASSERT_TRUE(device.map(range, first * kPage, pages, Access::kRead));
        for (std::uint64_t i = 0; i < count; ++i) {
          behind.at(first + i) = pages[i].value() + 1;
        }
      }
      for (std::size_t i = 0; i < behind.size(); ++i) {
        if (behind.at(i) > 0) {
          ASSERT_EQ(range.base[i * kPage], static_cast<std::byte>(behind.at(i)));
        }
      }
    }
    device.release(range);
  }
}

TEST(CpuDevice, PropertiesAreThoseOfTheArena) {
  const CpuDevice device = make_device(5);
  EXPECT_EQ(device.properties().kind, Kind::kCpu);
  EXPECT_EQ(device.properties().page_bytes, kPage);
  EXPECT_EQ(device.properties().page_count, 5U);
}

TEST(CpuDevice, StreamsCopyAndNameACoreThatIsNotThere) {
  CpuDevice device = make_device(2);
  const auto stream = device.create_stream().value();
  device.page_address(PageId(0))[9] = std::byte{3};
  stream->copy(device.page_address(PageId(1)), device.page_address(PageId(0)), kPage);
  ASSERT_TRUE(stream->synchronize());
  EXPECT_EQ(device.page_address(PageId(1))[9], std::byte{3});

  CpuDevice wrong(Arena::create({.page_bytes = kPage, .page_count = 1}).value(),
                  {.cores = {1 << 20}});
  EXPECT_FALSE(wrong.create_stream());
}

TEST(CpuDevice, HostPagesAreItsPages) {
  const CpuDevice device = make_device(3);
  EXPECT_EQ(device.host_page_address(PageId(2)), device.page_address(PageId(2)));
}

TEST(CpuDevice, BuffersAreZeroAndApartFromThePages) {
  CpuDevice device = make_device(1);
  for (const Place place : {Place::kDevice, Place::kHost}) {
    const Buffer buffer = device.allocate(place, 100).value();
    EXPECT_EQ(buffer.bytes(), 100U);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    for (std::size_t i = 0; i < buffer.bytes(); ++i) {
      ASSERT_EQ(buffer.data()[i], std::byte{0});
    }
    std::memset(buffer.data(), 1, buffer.bytes());
  }
  EXPECT_EQ(device.page_address(PageId(0))[0], std::byte{0});
  const auto refused = device.allocate(Place::kDevice, std::size_t{1} << 60U);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

TEST(CpuDevice, ItsStreamsRecordNothing) {
  CpuDevice device = make_device(1);
  const auto stream = device.create_background_stream().value();
  EXPECT_FALSE(stream->begin_capture());
  EXPECT_FALSE(stream->end_capture());
}

TEST(CpuDevice, TooLargeARangeIsAnError) {
  CpuDevice device = make_device(1);
  const auto refused = device.reserve(std::size_t{1} << 50U);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

/// Kernel pages of a range that can be touched without a fault, as the kernel counts.
std::uint64_t resident_kib(AddressRange range) {
  std::ifstream maps("/proc/self/smaps");
  std::uint64_t kib = 0;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') != std::string::npos && line.find(':') != std::string::npos &&
        line.find("kB") == std::string::npos) {
      const std::uint64_t start = std::stoull(line, nullptr, 16);
      const auto base = reinterpret_cast<std::uint64_t>(range.base);
      inside = start >= base && start < base + range.bytes;
    } else if (inside && line.starts_with("Rss:")) {
      kib += std::stoull(line.substr(4));
    }
  }
  return kib;
}

TEST(CpuDevice, WhatIsPopulatedDoesNotFault) {
  constexpr std::size_t kLarge = std::size_t{1} << 20U;
  CpuDevice device = make_device(24, kLarge);
  const AddressRange range = *device.reserve(20 * kLarge);
  for (std::uint64_t page = 0; page < 20; ++page) {
    const std::vector<PageId> one = ids({23 - page});
    ASSERT_TRUE(device.map(range, page * kLarge, one, Access::kRead));
  }
  EXPECT_EQ(resident_kib(range), 0U) << "mapping takes no time for what is in the pages";
  device.populate(range, 2 * kLarge, 17 * kLarge);
  EXPECT_GE(resident_kib(range), 17U << 10U);
  device.release(range);
}

TEST(CpuDevice, SaysHowManyMappingsThereShouldBe) {
  std::uint64_t allowed = 0;
  std::ifstream("/proc/sys/vm/max_map_count") >> allowed;
  EXPECT_EQ(make_device(1).properties().most_mappings, allowed / 2);
}

TEST(CpuDevice, WindowsOfHugePages) {
  constexpr std::size_t kHuge = std::size_t{2} << 20U;
  CpuDevice device = make_device(4, kHuge);
  const AddressRange range = *device.reserve(2 * kHuge);
  ASSERT_TRUE(device.map(range, 0, ids({3, 1}), Access::kRead));
  device.page_address(PageId(1))[kHuge - 1] = std::byte{8};
  EXPECT_EQ(range.base[2 * kHuge - 1], std::byte{8});
  device.unmap(range, 0, range.bytes);
  ASSERT_TRUE(device.map(range, 0, ids({0, 1}), Access::kRead));
  EXPECT_EQ(range.base[2 * kHuge - 1], std::byte{8});
  device.release(range);
}

}  // namespace
}  // namespace heddle::device
