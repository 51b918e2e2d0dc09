#include "core/manager/footprints.h"

#include <gtest/gtest.h>

namespace heddle::core::manager {
namespace {

constexpr DeviceId kFirst{1};
constexpr DeviceId kSecond{2};
constexpr DeviceId kThird{3};

std::vector<ManagerDevice> three() {
  return {{.id = kFirst, .kind = 1}, {.id = kSecond, .kind = 2}, {.id = kThird, .kind = 1}};
}

TEST(Footprints, AModelIsOnAllDevicesOfTheKindsThatItNames) {
  FootprintMaker maker(three());
  const Footprints all = maker.make(
      {.on_kinds = {{1, {.image_pages = 10}}, {2, {.image_pages = 20}}, {9, {.image_pages = 1}}}});
  EXPECT_EQ(all.size(), 3U);
  EXPECT_EQ(all.at(kFirst).image_pages, 10);
  EXPECT_EQ(all.at(kSecond).image_pages, 20);
  EXPECT_EQ(all.at(kThird).image_pages, 10);
  EXPECT_EQ(all.first_device(), kFirst);
  const Footprints some = maker.make({.on_kinds = {{2, {.image_pages = 5}}}});
  EXPECT_EQ(some.size(), 1U);
  EXPECT_EQ(some.find(kFirst), nullptr);
  EXPECT_EQ(some.first().image_pages, 5);
}

TEST(Footprints, WhatIsSaidOfADeviceHoldsThere) {
  const Footprints mixed = FootprintMaker(three()).make(
      {.footprints = {{kThird, {.image_pages = 3}}}, .on_kinds = {{1, {.image_pages = 10}}}});
  EXPECT_EQ(mixed.size(), 2U);
  EXPECT_EQ(mixed.at(kFirst).image_pages, 10);
  EXPECT_EQ(mixed.at(kThird).image_pages, 3);
  EXPECT_FALSE(mixed.contains(kSecond));
}

TEST(Footprints, ModelsOnTheSameDevicesShareTheListOfThem) {
  FootprintMaker maker(three());
  const ManagerModel single{
      .footprints = {{kFirst, {.image_pages = 1}}, {kThird, {.image_pages = 1}}}};
  const ManagerModel other{
      .footprints = {{kFirst, {.image_pages = 7}}, {kThird, {.image_pages = 7}}}};
  EXPECT_EQ(maker.make(single).list(), maker.make(other).list());
  EXPECT_EQ(maker.make(single).list(), maker.make({.on_kinds = {{1, {}}}}).list());
  EXPECT_EQ(maker.make(single).shapes().size(), 1U);
}

TEST(Footprints, ChangeByTheDevice) {
  Footprints none;
  EXPECT_TRUE(none.empty());
  none.put(kSecond, {.image_pages = 2});
  none.put(kFirst, {.image_pages = 2});
  EXPECT_EQ(none.shapes().size(), 1U);
  const Footprints before = none;
  none.put(kFirst, {.image_pages = 4});
  EXPECT_EQ(none.at(kFirst).image_pages, 4);
  EXPECT_EQ(none.at(kSecond).image_pages, 2);
  EXPECT_EQ(before.at(kFirst).image_pages, 2) << "what was copied is another's";
  none.erase_if([](DeviceId device) { return device == kSecond; });
  EXPECT_EQ(none.size(), 1U);
  EXPECT_FALSE(none.contains(kSecond));
}

TEST(Footprints, KnowTheFirstDeviceOfAHost) {
  Footprints all;
  EXPECT_EQ(all.first_at(HostId(1)), nullptr);
  for (const DeviceId device :
       {device_id(HostId(1), 2), device_id(HostId(3), 1), device_id(HostId(3), 0)}) {
    all.put(device, {.image_pages = 10});
  }
  ASSERT_NE(all.first_at(HostId(1)), nullptr);
  EXPECT_EQ(all.first_at(HostId(1))->device, device_id(HostId(1), 2));
  ASSERT_NE(all.first_at(HostId(3)), nullptr);
  EXPECT_EQ(all.first_at(HostId(3))->device, device_id(HostId(3), 0));
  EXPECT_EQ(all.first_at(HostId(2)), nullptr);
  EXPECT_EQ(all.first_at(HostId(4)), nullptr);
}

TEST(Footprints, AHintThatIsWrongIsNoHint) {
  const Footprints all = FootprintMaker(three()).make(
      {.on_kinds = {{1, {.image_pages = 10}}, {2, {.image_pages = 20}}}});
  for (const std::size_t hint : {0U, 1U, 2U, 3U}) {
    ASSERT_NE(all.find(kSecond, hint), nullptr);
    EXPECT_EQ(all.find(kSecond, hint)->image_pages, 20);
    EXPECT_EQ(all.find(DeviceId(9), hint), nullptr);
  }
}

}  // namespace
}  // namespace heddle::core::manager
