#include "worker/guest_hosts.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(served.client->answered(), 2U);
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

TEST(GuestHosts, WhatIsNoAreaIsNotServed) {
  GuestTime time;
  GuestHosts hosts(nullptr, pair::kPageBytes, Duration{}, time);
  hosts.serve(kHotModel, Descriptor(::dup(0)), {PageId(1)});
  hosts.lend(kHotModel, {PageId(1)});
  SUCCEED();
}

}  // namespace
}  // namespace heddle::worker
