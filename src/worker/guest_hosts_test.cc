#include "worker/guest_hosts.h"

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "device/cuda/cuda_device.h"
#include "weave/test_pair.h"

namespace heddle::worker {
namespace {

namespace pair = weave::test;

constexpr ModelId kHotModel{1};

/// A pair whose host's side is a GuestHosts.
struct Served : pair::Pair {
  Served() {
    hosts.serve(kHotModel, Descriptor(::dup(area->fd())), lent);
    client->begin_step(sequences());
  }
  [[nodiscard]] bool ask(std::int64_t layer) {
    const ops::GuestRows asked = rows(layer);
    client->post(asked);
    return client->await(asked);
  }

  GuestTime time{};
  GuestHosts hosts{
      reinterpret_cast<const std::byte*>(arena.data()), pair::kPageBytes, Duration{}, time};
};

TEST(GuestHosts, AThreadRunsWhatTheHotSideAsksFor) {
  Served served;
  for (std::int64_t layer = 0; layer < pair::kLayers; layer += 2) {
    EXPECT_TRUE(served.ask(layer)) << layer;
  }
  EXPECT_EQ(served.client->counts().answered, 2U);
}

TEST(GuestHosts, EndsWithTheLastPage) {
  Served served;
  EXPECT_TRUE(served.ask(0));
  served.hosts.lend(kHotModel, served.lent);
  EXPECT_TRUE(served.ask(2)) << "with as many";
  served.hosts.lend(kHotModel, {});
  EXPECT_TRUE(served.area->closed());
  EXPECT_FALSE(served.ask(0));
}

TEST(GuestHosts, BlocksThatAreNotLentAnyMoreAreRefused) {
  Served served;
  served.hosts.lend(kHotModel, {PageId(0)});
  EXPECT_FALSE(served.ask(0));
  EXPECT_TRUE(served.area->closed());
}

TEST(GuestHosts, ANewAreaTakesThePlaceOfTheOld) {
  Served served;
  const auto next = weave::JobArea::create(pair::geometry()).value();
  served.hosts.serve(kHotModel, Descriptor(::dup(next->fd())), served.lent);
  EXPECT_TRUE(served.area->closed());
  EXPECT_FALSE(next->closed());
}

/// A GPU that lends, on an emulated driver.
struct Gpu {
  emulator::EmulatedDriver driver{"memory=4MiB,granularity=65536"};
  std::unique_ptr<device::CudaDevice> device =
      device::CudaDevice::create({.page_bytes = std::size_t{64} << 10U,
                                  .bytes = std::size_t{512} << 10U,
                                  .driver = emulator::EmulatedDriver::open().value()})
          .value();
  GuestTime time{};
};

TEST(GuestHosts, AGpuSharesWhatItLendsAndLetsGoOfTheRest) {
  Gpu gpu;
  std::vector<Descriptor> known;
  {
    GuestHosts hosts(*gpu.device, gpu.time);
    auto shared = hosts.share(kHotModel, {PageId(1), PageId(2), PageId(5)});
    ASSERT_TRUE(shared);
    ASSERT_EQ(shared->size(), 3U);
    known = std::move(*shared);
    EXPECT_FALSE(hosts.share(kHotModel, {PageId(2)})) << "it has its memory";
    hosts.lend(kHotModel, {PageId(1), PageId(5)});
    EXPECT_TRUE(hosts.share(kHotModel, {PageId(2)})) << "it was let go of";
    hosts.lend(kHotModel, {});
    EXPECT_TRUE(hosts.share(ModelId(9), {PageId(1), PageId(2), PageId(5)}));
  }
  GuestHosts next(*gpu.device, gpu.time);
  EXPECT_TRUE(next.share_again(kHotModel, {PageId(1), PageId(2), PageId(5)}, known));
  EXPECT_FALSE(next.share(kHotModel, {PageId(1)})) << "it has what it had in the former life";
}

TEST(GuestHosts, AGpuThatCannotShareAllSharesNone) {
  Gpu gpu;
  GuestHosts hosts(*gpu.device, gpu.time);
  gpu.driver.fail("cuMemCreate", 2, device::kCudaOutOfMemory);
  const auto shared = hosts.share(kHotModel, {PageId(1), PageId(2)});
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(hosts.share(kHotModel, {PageId(1), PageId(2)}));
}

TEST(GuestHosts, APartOfTheHostSharesNothing) {
  Served served;
  EXPECT_EQ(served.hosts.share(kHotModel, {PageId(1)}).error().code, Code::kFailedPrecondition);
}

TEST(GuestHosts, WhatIsNoAreaIsNotServed) {
  GuestTime time;
  GuestHosts hosts(nullptr, pair::kPageBytes, Duration{}, time);
  hosts.serve(kHotModel, Descriptor(::dup(0)), {PageId(1)});
  hosts.lend(kHotModel, {PageId(1)});
  SUCCEED();
}

}  // namespace
}  // namespace heddle::worker
