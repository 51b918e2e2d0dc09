#include "memory/window.h"

#include <array>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/fake/fake_device.h"
#include "memory/device_under_test.h"

namespace heddle::memory {
namespace {

using device::Access;
using device::PageId;
using ::testing::ElementsAre;

constexpr std::size_t kPage = std::size_t{64} << 10U;

TEST(Window, RoundsUpAndFillsFromTheBase) {
  device::FakeDevice device(kPage, 8);
  Window window = Window::create(device, 2 * kPage + 1).value();
  EXPECT_EQ(window.bytes(), 3 * kPage);
  ASSERT_TRUE(window.map(std::array{PageId(4)}, Access::kRead));
  ASSERT_TRUE(window.map(std::array{PageId(0), PageId(7)}, Access::kRead));
  EXPECT_EQ(window.mapped_bytes(), 3 * kPage);
  EXPECT_EQ(device.page_at(window.base()), PageId(4));
  EXPECT_EQ(device.page_at(window.base() + 2 * kPage), PageId(7));
}

TEST(Window, KeepsItsAddressAcrossEvictionAndGivesItBackAtTheEnd) {
  device::FakeDevice device(kPage, 8);
  {
    Window window = Window::create(device, 2 * kPage).value();
    const std::byte* const base = window.base();
    ASSERT_TRUE(window.map(std::array{PageId(1), PageId(2)}, Access::kRead));
    window.unmap_all();
    EXPECT_EQ(device.page_at(base), std::nullopt);
    ASSERT_TRUE(window.map(std::array{PageId(5)}, Access::kRead));
    EXPECT_EQ(window.base(), base);
    EXPECT_EQ(device.page_at(base), PageId(5));
    Window moved = std::move(window);
    EXPECT_EQ(moved.base(), base);
  }
  EXPECT_EQ(device.reserved_bytes(), 0U);
  EXPECT_THAT(device.calls(),
              ElementsAre("reserve 131072",
                          "map 0 2 pages",
                          "unmap 0 131072",
                          "map 0 1 pages",
                          "unmap 0 65536",
                          "release 131072"));
}

TEST(Window, AFailedMapLeavesItAsItWas) {
  device::FakeDevice device(kPage, 8);
  Window window = Window::create(device, 2 * kPage).value();
  ASSERT_TRUE(window.map(std::array{PageId(1)}, Access::kRead));
  device.fail_map(1);
  EXPECT_FALSE(window.map(std::array{PageId(2)}, Access::kRead));
  EXPECT_EQ(window.mapped_bytes(), kPage);
  EXPECT_TRUE(window.map(std::array{PageId(3)}, Access::kRead));
  EXPECT_EQ(device.page_at(window.base() + kPage), PageId(3));
}

TEST(Window, ShrinksFromItsEndAndGrowsAgain) {
  device::FakeDevice device(kPage, 8);
  Window window = Window::create(device, 3 * kPage).value();
  ASSERT_TRUE(window.map(std::array{PageId(4), PageId(1), PageId(6)}, Access::kReadWrite));
  window.shrink(kPage);
  EXPECT_EQ(window.mapped_bytes(), kPage);
  EXPECT_EQ(device.page_at(window.base()), PageId(4));
  EXPECT_EQ(device.page_at(window.base() + kPage), std::nullopt);
  window.shrink(kPage);
  ASSERT_TRUE(window.map(std::array{PageId(2)}, Access::kReadWrite));
  EXPECT_EQ(device.page_at(window.base() + kPage), PageId(2));
}

TEST(Window, NoAddressesIsAnError) {
  device::FakeDevice device(kPage, 8);
  device.limit_addresses(kPage);
  const auto refused = Window::create(device, kPage + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
}

TEST(WindowDeathTest, MoreThanFitsIsABug) {
  device::FakeDevice device(kPage, 8);
  Window window = Window::create(device, kPage).value();
  EXPECT_DEATH((void)window.map(std::array{PageId(1), PageId(2)}, Access::kRead), "pages.size");
}

class WindowOnDevice : public testing::TestWithParam<device::Kind> {};

// The real thing: what is written through the pool's mapping is read, in order, through the window.
TEST_P(WindowOnDevice, IsTheSameMemoryAsThePages) {
  DeviceUnderTest subject(GetParam(), kPage, 8);
  device::Device& device = subject.device();
  Window window = Window::create(device, 3 * kPage).value();
  for (const std::array<PageId, 3>& pages :
       {std::array{PageId(6), PageId(0), PageId(1)}, std::array{PageId(3), PageId(4), PageId(2)}}) {
    ASSERT_TRUE(window.map(pages, Access::kRead));
    for (const PageId page : pages) {
      subject.fill(device.page_address(page), static_cast<unsigned char>(page.value()), kPage);
    }
    const std::byte* const read = subject.read(window.base(), 3 * kPage);
    for (std::size_t i = 0; i < pages.size(); ++i) {
      EXPECT_EQ(read[i * kPage], static_cast<std::byte>(pages.at(i).value()));
      EXPECT_EQ(read[(i + 1) * kPage - 1], static_cast<std::byte>(pages.at(i).value()));
    }
    window.unmap_all();
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, WindowOnDevice, kDeviceKinds, kind_name);

}  // namespace
}  // namespace heddle::memory
