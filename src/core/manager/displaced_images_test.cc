#include "core/manager/displaced_images.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"
#include "core/manager/value.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::TestState;

constexpr HostId kHere = host_of(kDevice);
constexpr std::uint64_t kBytes = test::kImagePages * test::kPageBytes;
const std::vector<ShardPlace> kPlaces{{.model = kA, .device = kDevice}};

/// A host that has the images of b and c, and was full with them.
struct FullHost : TestState {
  FullHost() : TestState(1, {.prewarm = true, .value = true}) {
    pass(1h);
    have(kA, kBytes);
    have(kB, kBytes);
    have(kA, 0);
    have(kC, kBytes);
    for (const ModelId id : {kA, kB, kC}) {
      model(id).load_times = {5s, 1s};
    }
    came(kB, 60s);
    came(kC, 40s);
  }
  void have(ModelId id, std::uint64_t bytes, HostId host = kHere) {
    catalog.image({.model = id, .bytes = bytes, .host_cached = bytes > 0, .host = host});
  }
  /// A request came so long ago, as others do at such gaps.
  void came(ModelId id, Duration ago) {
    model(id).demand.arrived(state.now - 2 * ago, 1, state.options.planner.calendar);
    model(id).demand.arrived(state.now - ago, 1, state.options.planner.calendar);
    model(id).last_used = state.now - ago;
  }
  [[nodiscard]] double worth() const { return DisplacedImages(state).worth(kPlaces); }
};

TEST(DisplacedImages, TheLeastRecentlyUsedGoesAndIsWorthWhatItsNextLoadIsLonger) {
  FullHost core;
  const double b = image_worth(core.state, core.model(kB), kHere);
  EXPECT_GT(b, 0);
  EXPECT_LE(b, 4) << "no more than it takes longer from disk";
  EXPECT_DOUBLE_EQ(core.worth(), b);
}

TEST(DisplacedImages, WhatIsThereDisplacesNothing) {
  FullHost core;
  core.have(kA, kBytes);
  EXPECT_EQ(core.worth(), 0);
}

TEST(DisplacedImages, AHostThatNeverDroppedOneHasRoom) {
  FullHost core;
  core.state.full_hosts.clear();
  EXPECT_EQ(core.worth(), 0);
}

TEST(DisplacedImages, AsManyGoAsTheRoomTakes) {
  FullHost core;
  core.model(kA).config.image_bytes = kBytes + 1;
  EXPECT_DOUBLE_EQ(core.worth(),
                   image_worth(core.state, core.model(kB), kHere) +
                       image_worth(core.state, core.model(kC), kHere));
}

TEST(DisplacedImages, WithoutValueNothingIsWorthAnything) {
  FullHost core;
  core.state.options.planner.value = false;
  EXPECT_EQ(core.worth(), 0);
}

TEST(DisplacedImages, AHostIsFullOnceItHasDroppedAnImageThatWasComplete) {
  TestState core;
  const auto tell = [&](std::uint64_t bytes, bool cached) {
    core.catalog.image({.model = kA, .bytes = bytes, .host_cached = cached, .host = kHere});
    return core.state.full_hosts.contains(kHere);
  };
  EXPECT_FALSE(tell(kBytes / 2, false));
  EXPECT_FALSE(tell(0, false)) << "a load that ended";
  EXPECT_FALSE(tell(kBytes, true));
  EXPECT_FALSE(tell(kBytes, false)) << "it is on a device";
  EXPECT_FALSE(tell(kBytes, true));
  core.model(kA).removed = true;
  EXPECT_FALSE(tell(0, false)) << "nobody wants it any more";
  core.model(kA).removed = false;
  tell(kBytes, true);
  EXPECT_TRUE(tell(0, false));
}

}  // namespace
}  // namespace heddle::core::manager
