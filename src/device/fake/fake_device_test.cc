#include "device/fake/fake_device.h"

#include <array>
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::device {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t kPage = 4096;

TEST(FakeDevice, RecordsCallsAndMappings) {
  FakeDevice device(kPage, 8);
  const AddressRange range = *device.reserve(2 * kPage);
  const std::array pages{PageId(5), PageId(1)};
  ASSERT_TRUE(device.map(range, 0, pages, Access::kRead));
  EXPECT_EQ(device.page_at(range.base), PageId(5));
  EXPECT_EQ(device.page_at(range.base + kPage + 7), PageId(1));
  device.unmap(range, 0, kPage);
  EXPECT_EQ(device.page_at(range.base), std::nullopt);
  EXPECT_EQ(device.page_at(range.base + kPage), PageId(1));
  device.release(range);
  EXPECT_EQ(device.reserved_bytes(), 0U);
  EXPECT_THAT(device.calls(),
              ElementsAre("reserve 8192", "map 0 2 pages", "unmap 0 4096", "release 8192"));
}

TEST(FakeDevice, FailsTheNthMapOnce) {
  FakeDevice device(kPage, 8);
  const AddressRange range = *device.reserve(4 * kPage);
  const std::array pages{PageId(0)};
  device.fail_map(2);
  EXPECT_TRUE(device.map(range, 0, pages, Access::kRead));
  EXPECT_FALSE(device.map(range, kPage, pages, Access::kRead));
  EXPECT_TRUE(device.map(range, kPage, pages, Access::kRead));
}

TEST(FakeDevice, BuffersAreZeroAndFailWhenAsked) {
  FakeDevice device(kPage, 8);
  device.fail_allocate(2);
  const Buffer first = device.allocate(Place::kHost, 64).value();
  EXPECT_EQ(first.bytes(), 64U);
  EXPECT_EQ(first.data()[63], std::byte{0});
  const auto refused = device.allocate(Place::kDevice, 64);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(device.allocate(Place::kDevice, 64));
  EXPECT_THAT(device.calls(), ElementsAre("allocate 64", "allocate 64", "allocate 64"));
  EXPECT_EQ(device.host_page_address(PageId(3)), device.page_address(PageId(3)));
}

TEST(FakeDevice, RunsOutOfAddresses) {
  FakeDevice device(kPage, 8);
  device.limit_addresses(3 * kPage);
  const AddressRange range = *device.reserve(2 * kPage);
  const auto refused = device.reserve(2 * kPage);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  device.release(range);
  EXPECT_TRUE(device.reserve(3 * kPage));
}

TEST(FakeDevice, CopiesOnlyWhenSynchronised) {
  FakeDevice device(kPage, 2);
  std::byte* const target = device.page_address(PageId(1));
  const std::array<std::byte, 3> source{std::byte{1}, std::byte{2}, std::byte{3}};
  const auto stream = device.create_stream().value();
  stream->copy(target, source.data(), source.size());
  EXPECT_EQ(target[0], std::byte{0});
  ASSERT_TRUE(stream->synchronize());
  EXPECT_EQ(std::memcmp(target, source.data(), source.size()), 0);
}

}  // namespace
}  // namespace heddle::device
