#include "engine/mirror.h"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "device/fake/fake_device.h"

namespace heddle::engine {
namespace {

TEST(Mirror, WhatIsAddedIsOnTheDeviceAndWhatIsFetchedOnTheHost) {
  device::FakeDevice device(4096, 4);
  const auto stream = device.create_stream().value();
  const ops::KernelTable kernels;
  ops::OpContext context{.stream = *stream, .kernels = kernels};
  Mirror mirror(device);
  const std::size_t bytes = mirror.add(std::vector<std::uint8_t>{1, 2, 3});
  const std::size_t numbers = mirror.add(std::vector<float>{0.5F, 1.5F});
  const std::size_t empty = mirror.add(std::vector<float>{});
  const std::size_t result = mirror.reserve<float>(2);
  ASSERT_TRUE(mirror.send(context));
  ASSERT_TRUE(stream->synchronize());
  EXPECT_EQ(mirror.device<std::uint8_t>(bytes)[2], 3);
  EXPECT_EQ(mirror.device<float>(numbers)[1], 1.5F);
  EXPECT_NE(mirror.device<float>(empty), nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mirror.device<float>(result)) % 16, 0U);

  // As a kernel would.
  mirror.device<float>(result)[0] = 7.0F;
  mirror.device<float>(result)[1] = mirror.device<float>(numbers)[0];
  mirror.fetch(*stream, result, 2 * sizeof(float));
  ASSERT_TRUE(stream->synchronize());
  EXPECT_EQ(mirror.host<float>(result)[0], 7.0F);
  EXPECT_EQ(mirror.host<float>(result)[1], 0.5F);
}

TEST(Mirror, ItsMemoryStaysWhereItIsUntilMoreIsNeeded) {
  device::FakeDevice device(4096, 4);
  const auto stream = device.create_stream().value();
  const ops::KernelTable kernels;
  ops::OpContext context{.stream = *stream, .kernels = kernels};
  Mirror mirror(device);
  const std::vector<std::int32_t> few(10, 4);
  const std::vector<std::int32_t> many(10'000, 5);
  const auto send = [&](const std::vector<std::int32_t>& values) {
    mirror.clear();
    const std::size_t at = mirror.add(values);
    EXPECT_TRUE(mirror.send(context));
    EXPECT_TRUE(stream->synchronize());
    EXPECT_EQ(mirror.device<std::int32_t>(at)[values.size() - 1], values.back());
    return mirror.device<std::byte>(0);
  };
  const std::byte* first = send(few);
  EXPECT_EQ(send(few), first);
  send(many);
  const std::byte* larger = mirror.device<std::byte>(0);
  EXPECT_EQ(send(few), larger);
}

}  // namespace
}  // namespace heddle::engine
