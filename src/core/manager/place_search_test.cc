#include "core/manager/place_search.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/test_state.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kOther;
using test::TestState;

/// What a look at all devices gives.
policy::Placement by_views(const TestState& core, ModelId model, std::int64_t need, Instant since) {
  const Places places = places_for(core.state, model, need);
  return policy::choose_placement(places.views,
                                  core.state.now,
                                  since,
                                  placing(core.state, model, places.load_takes, places.soonest));
}

/// Something happens to a device at random.
void change(TestState& core, Rng& rng, std::uint64_t devices) {
  const ModelId model(rng.below(2) + 1);
  const DeviceId device(rng.below(devices));
  const auto& instances = core.state.devices.at(device).instances;
  const auto found = instances.find(model);
  const bool there = found != instances.end();
  switch (rng.below(10)) {
    case 0:
      if (!there) {
        core.serve(model, device);
      }
      break;
    case 1:
      if (there && found->second.is<Serving>()) {
        core.run(model, device);
      }
      break;
    case 2:
      if (there && !found->second.in_flight.empty()) {
        core.finish(*found->second.in_flight.begin());
      }
      break;
    case 3:
      if (there && found->second.in_flight.empty()) {
        core.residency.forget(device, model);
      }
      break;
    case 4:
      if (there) {
        core.residency.hold_pages(device, model, static_cast<std::int64_t>(rng.below(6)));
      }
      break;
    case 5:
      core.devices.pause(device, core.state.now + Duration(rng.below(1'000'000'000)));
      break;
    case 6:
      core.shortages.owe(device, model, static_cast<std::int64_t>(rng.below(6)));
      break;
    case 7:
      rng.below(2) == 0 ? core.devices.refused(device) : core.devices.accepted(device);
      break;
    case 8: {
      ledger::PoolUsage usage{.total = 20};
      usage.by_kind[static_cast<std::size_t>(ledger::LeaseKind::kOverhead)].held =
          static_cast<std::int64_t>(rng.below(6));
      core.devices.usage(device, usage);
      break;
    }
    default:
      core.devices.leaves(device, rng.below(4) == 0);
      core.pass(Duration(rng.below(200'000'000)));
  }
}

TEST(PlaceSearch, ChoosesAsALookAtAllDevicesDoes) {
  constexpr std::uint64_t kDevices = 5;
  int waits = 0;
  int loads = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const bool valued = seed % 3 != 0;
    TestState core(kDevices, {.value = valued, .pressure = valued, .share = seed % 5 != 0});
    core.wait(kC);
    const Instant since = core.state.now;
    for (int i = 0; i < 200; ++i) {
      change(core, rng, kDevices);
      const std::int64_t need = rng.below(10) == 0 ? 80 : 8;
      const PlaceChoice choice = core.search.choose(kC, need, since);
      ASSERT_EQ(choice.placement, by_views(core, kC, need, since)) << i;
      core.search.check();
      waits += choice.placement.outcome == policy::PlacementOutcome::kWait ? 1 : 0;
      loads += choice.placement.outcome == policy::PlacementOutcome::kLoad ? 1 : 0;
    }
  }
  EXPECT_GT(waits, 500);
  EXPECT_GT(loads, 500);
}

TEST(PlaceSearch, AModelThatFitsTheLastDeviceAloneFindsIt) {
  TestState core(9);
  for (std::uint64_t device = 0; device < 9; ++device) {
    core.resize(DeviceId(device), device == 8 ? 20 : 8);
  }
  core.wait(kA);
  const PlaceChoice choice = core.search.choose(kA, 8, core.state.now);
  EXPECT_EQ(choice.placement.outcome, policy::PlacementOutcome::kLoad);
  EXPECT_EQ(choice.placement.device, DeviceId(8));
}

TEST(PlaceSearch, SaysWhatFitsWhereThereIsTooLittle) {
  TestState core;
  const PlaceChoice choice = core.search.choose(kA, 1'000, core.state.now);
  EXPECT_EQ(choice.placement.outcome, policy::PlacementOutcome::kNever);
  EXPECT_EQ(choice.fits_elsewhere, 96);
}

TEST(PlaceSearch, ADeviceThatIsPausedIsSaidWhenItMayBeHad) {
  TestState core(2);
  core.devices.pause(kDevice, core.state.now + 2s);
  core.devices.pause(kOther, core.state.now + 1s);
  EXPECT_EQ(core.search.choose(kA, 8, core.state.now).paused_until, core.state.now + 1s);
  core.devices.pause(kOther, core.state.now + 3s);
  EXPECT_EQ(core.search.choose(kA, 8, core.state.now).paused_until, core.state.now + 2s);
}

TEST(PlaceSearch, AReplicaGoesWhereTheModelIsNotAndAtOnce) {
  TestState core(2);
  core.serve(kA);
  EXPECT_EQ(choose_replica(core.state, kA).placement.device, kOther);
  core.serve(kA, kOther);
  EXPECT_NE(choose_replica(core.state, kA).placement.outcome, policy::PlacementOutcome::kLoad);
}

}  // namespace
}  // namespace heddle::core::manager
