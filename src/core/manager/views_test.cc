#include "core/manager/views.h"

#include <gtest/gtest.h>

#include "core/manager/test_state.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kC;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::TestState;

TEST(View, SaysWhatTheModelNeedsWhatIsFreeAndWhoIsInItsWay) {
  TestState core;
  core.serve(kA);
  core.run(kA);
  core.wait(kA);
  core.serve(kB);
  core.residency.evict(kDevice, kB, EvictMode::kWhenIdle, EvictionReason::kIdle);
  const policy::PlacementDevice there = view(core.state, core.device(), kC);
  EXPECT_EQ(there.need_pages, 9);
  EXPECT_EQ(there.pages, 20);
  EXPECT_EQ(there.free_pages, 11);
  EXPECT_TRUE(there.available);
  ASSERT_EQ(there.residents.size(), 1U) << "what is evicted is in nobody's way";
  EXPECT_EQ(there.residents[0].model, kA);
  EXPECT_EQ(there.residents[0].pages, 9);
  EXPECT_EQ(there.residents[0].queue, 2);
  EXPECT_FALSE(there.residents[0].pinned);
  EXPECT_FALSE(there.residents[0].in_transition);
}

TEST(View, SaysHowLongTheOldestRequestOfAnEngineHasWaitedOrRun) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  const auto oldest = [&] {
    for (const policy::ResidentView& resident : view(core.state, core.device(), kC).residents) {
      if (resident.model == kEngine) {
        return resident.oldest_wait;
      }
    }
    return Duration::max();
  };
  EXPECT_EQ(oldest(), 0s);
  const RequestId runs = core.run(kEngine);
  core.pass(3s);
  core.wait(kEngine);
  core.pass(1s);
  EXPECT_EQ(oldest(), 4s) << "one runs since then";
  core.finish(runs);
  EXPECT_EQ(oldest(), 1s) << "and one waits";
  core.serve(kA);
  core.run(kA);
  core.pass(2s);
  const policy::PlacementDevice there = view(core.state, core.device(), kC);
  EXPECT_EQ(there.residents.front().model, kA);
  EXPECT_EQ(there.residents.front().oldest_wait, 2s) << "they are candidates beside each other";
}

TEST(View, PagesThatAreOwedToAModelAreItsOwn) {
  TestState core;
  core.serve(kA);
  const policy::PlacementDevice before = view(core.state, core.device(), kC);
  EXPECT_EQ(core.shortages.owe(kDevice, kA, 4), core.state.now + 1s);
  const policy::PlacementDevice there = view(core.state, core.device(), kC);
  EXPECT_EQ(there.free_pages, before.free_pages - 4);
  EXPECT_EQ(there.residents[0].pages, before.residents[0].pages + 4) << "it leaves with them";
  core.pass(1s);
  EXPECT_EQ(view(core.state, core.device(), kC).free_pages, before.free_pages);
}

TEST(View, CudaGraphsThatStayAreInTheWayOfLoadsThatWereRefused) {
  TestState core;
  core.serve(kA);
  ledger::PoolUsage usage{.total = 20, .free = 7};
  usage.by_kind[static_cast<std::size_t>(ledger::LeaseKind::kOverhead)] = {.reserved = 5,
                                                                           .held = 5};
  core.devices.usage(kDevice, usage);
  const policy::PlacementDevice before = view(core.state, core.device(), kC);
  core.devices.refused(kDevice);
  const policy::PlacementDevice there = view(core.state, core.device(), kC);
  EXPECT_LT(there.free_pages, before.free_pages);
  EXPECT_GE(there.free_pages + there.residents[0].pages, there.need_pages)
      << "where all leave there is room";
  core.devices.usage(kDevice, {.total = 20, .free = 7});
  EXPECT_EQ(view(core.state, core.device(), kC).free_pages, before.free_pages);
}

TEST(View, ADeviceIsAvailableForOneThingAtATime) {
  const auto available = [](const TestState& core, ModelId model = kC) {
    return view(core.state, core.state.devices.at(kDevice), model).available;
  };
  TestState core(2);
  core.add_group();
  EXPECT_TRUE(available(core));
  core.devices.pause(kDevice, core.state.now + 1s);
  EXPECT_FALSE(available(core));
  core.pass(1s);
  core.plans.begin(kDevice, kA, {});
  EXPECT_FALSE(available(core));
  core.plans.cancel(kDevice);
  core.queues.keep_alone(kDevice, core.wait(kA));
  EXPECT_FALSE(available(core));
  core.queues.release(kDevice);
  core.device().claimed = kGroup;
  EXPECT_FALSE(available(core));
  EXPECT_TRUE(available(core, kGroup));
  core.device().claimed.reset();
  core.serve(kC);
  EXPECT_FALSE(available(core)) << "it is there";
  core.residency.forget(kDevice, kC);
  EXPECT_TRUE(available(core));
  core.devices.down(kDevice);
  EXPECT_FALSE(available(core));
}

TEST(View, AnEngineThatStandsByHasAPartOfWhatItNeeds) {
  TestState core;
  core.add_engine();
  EXPECT_EQ(view(core.state, core.device(), kEngine).need_pages, 12);
  core.serve(kEngine);
  core.residency.suspend(kDevice, kEngine, 5);
  EXPECT_EQ(view(core.state, core.device(), kEngine).need_pages, 7);
  EXPECT_TRUE(view(core.state, core.device(), kEngine).available);
  core.residency.suspend(kDevice, kEngine, 12);
  EXPECT_EQ(view(core.state, core.device(), kEngine).need_pages, 1) << "never nothing";
}

TEST(View, AnEngineInTheWayCostsItsSwapAndIfItStandsByGoesOnlyWithoutRequests) {
  TestState core;
  core.add_engine();
  core.model(kEngine).swap_out = 2s;
  core.model(kEngine).swap_in = 3s;
  core.model(kA).config.displaces = {kEngine};
  core.serve(kEngine);
  core.run(kEngine);
  policy::ResidentView engine = view(core.state, core.device(), kA).residents.at(0);
  EXPECT_EQ(engine.swap, 5s);
  EXPECT_EQ(engine.queue, 1);
  EXPECT_TRUE(engine.displaced);
  EXPECT_FALSE(engine.in_transition);
  core.residency.suspend(kDevice, kEngine, 5);
  engine = view(core.state, core.device(), kA).residents.at(0);
  EXPECT_FALSE(engine.displaced) << "it does not run";
  EXPECT_TRUE(engine.in_transition) << "its request would not survive that";
  core.residency.suspend(kDevice, kEngine, 0);
  EXPECT_TRUE(view(core.state, core.device(), kA).residents.empty()) << "it holds nothing";
}

TEST(View, WhoComesAndGoesIsInTransitionAndWhoStaysIsPinned) {
  TestState core;
  core.load(kA);
  core.serve(kB);
  core.model(kB).config.pin = true;
  const auto residents = view(core.state, core.device(), kC).residents;
  ASSERT_EQ(residents.size(), 2U);
  EXPECT_TRUE(residents[0].in_transition);
  EXPECT_TRUE(residents[1].pinned);
}

TEST(View, AGroupHasAllPagesOfItsDeviceAndStandsAsItsLeaderDoes) {
  TestState core(2);
  core.add_group();
  core.serve_group();
  core.run(kGroup);
  const policy::ResidentView shard = view(core.state, core.device(kOther), kA).residents.at(0);
  EXPECT_EQ(shard.model, kShard);
  EXPECT_EQ(shard.pages, 20);
  EXPECT_EQ(shard.queue, 1);
  EXPECT_TRUE(shard.displaced) << "nothing runs beside it";
  EXPECT_FALSE(shard.runs_alone);
}

TEST(View, AStagedShardIsAResidentLikeAnother) {
  TestState core(2);
  core.add_group();
  core.stage(kShard);
  const policy::ResidentView shard = view(core.state, core.device(kOther), kA).residents.at(0);
  EXPECT_EQ(shard.pages, 9);
  EXPECT_FALSE(shard.displaced);
  EXPECT_FALSE(shard.in_transition);
  EXPECT_TRUE(shard.runs_alone);
}

TEST(View, WhereModelsDoNotShareABusyOneCannotStay) {
  TestState core(1, {.share = false});
  core.serve(kA);
  EXPECT_FALSE(view(core.state, core.device(), kB).residents.at(0).displaced);
  EXPECT_FALSE(blocked(core.state, core.device(), kB));
  core.run(kA);
  EXPECT_TRUE(view(core.state, core.device(), kB).residents.at(0).displaced);
  EXPECT_TRUE(blocked(core.state, core.device(), kB));
  EXPECT_FALSE(blocked(core.state, core.device(), kA)) << "it is its own request";
  core.state.options.planner.share = true;
  EXPECT_FALSE(blocked(core.state, core.device(), kB));
}

TEST(BlockView, IsOneDeviceFromWhichAllOthersHaveToGo) {
  TestState core(2);
  core.add_group();
  core.serve(kA, kOther);
  const policy::PlacementDevice all = block_view(core.state, kGroup, kDevice);
  EXPECT_EQ(all.pages, 40);
  EXPECT_EQ(all.need_pages, 40);
  EXPECT_EQ(all.free_pages, 31);
  EXPECT_TRUE(all.available);
  ASSERT_EQ(all.residents.size(), 1U);
  EXPECT_TRUE(all.residents[0].displaced);
  core.devices.down(kOther);
  EXPECT_FALSE(block_view(core.state, kGroup, kDevice).available);
}

TEST(BlockView, ItsOwnStagedShardsAreNotInItsWay) {
  TestState core(2);
  core.add_group();
  core.stage(kShard);
  const policy::PlacementDevice all = block_view(core.state, kGroup, kDevice);
  EXPECT_TRUE(all.residents.empty());
  EXPECT_EQ(all.free_pages, 40);
  EXPECT_TRUE(all.available);
}

TEST(PlacesFor, AreTheDevicesOnWhichTheRequestFits) {
  TestState core(2);
  core.device(kOther).config.pages = 15;
  const Places all = places_for(core.state, kA, 56);
  EXPECT_EQ(all.views.size(), 2U);
  EXPECT_EQ(all.fits_elsewhere, 0);
  const Places large = places_for(core.state, kA, 57);
  ASSERT_EQ(large.views.size(), 1U);
  EXPECT_EQ(large.views[0].id, kDevice);
  EXPECT_EQ(large.fits_elsewhere, 56);
  EXPECT_TRUE(places_for(core.state, kA, 97).views.empty());
  EXPECT_EQ(places_for(core.state, kA, 97).fits_elsewhere, 96);
}

TEST(PlacesFor, AreTheBlocksOfAShardedModel) {
  TestState core(4);
  core.add_group();
  const Places places = places_for(core.state, kGroup, 8);
  ASSERT_EQ(places.views.size(), 2U);
  EXPECT_EQ(places.views[1].id, DeviceId(2));
  EXPECT_EQ(places.load_takes, 0s) << "values do not count";
  core.device(DeviceId(3)).config.pages = 5;
  EXPECT_EQ(places_for(core.state, kGroup, 0).views.size(), 1U) << "its shard fits nowhere there";
}

TEST(ServingPlaces, AreInstancesThatServeTheLeastBusyFirst) {
  TestState core(3);
  core.serve(kA);
  core.serve(kA, kOther);
  core.load(kA, DeviceId(2));
  core.run(kA);
  EXPECT_EQ(serving_places(core.state, kA), (std::vector{kOther, kDevice}));
  EXPECT_TRUE(serving_places(core.state, kB).empty());
}

TEST(ServingPlaces, ThoseThatAreSparedComeLastWhileTheOthersHaveRoom) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  core.residency.spare(kOther, kA, true);
  for (int i = 0; i < 3; ++i) {
    core.run(kA);
  }
  EXPECT_EQ(serving_places(core.state, kA).front(), kDevice) << "3 of a batch of 4";
  core.run(kA);
  EXPECT_EQ(serving_places(core.state, kA).front(), kOther);
}

TEST(ServingPlaces, WhereRequestsWaitForMemoryComesLastIfPressureCounts) {
  for (const bool counts : {false, true}) {
    TestState core(2, {.pressure = counts});
    core.serve(kA);
    core.serve(kA, kOther);
    core.shortages.heard(kDevice, {.short_sequences = 1, .short_pages = 1, .short_model = kA});
    EXPECT_EQ(serving_places(core.state, kA).front(), counts ? kOther : kDevice);
  }
}

TEST(ServingPlaces, WhereTheAdapterIsComesBeforeOneThatIsLessBusy) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  core.residency.observe(kDevice, {.model = kA, .adapters = {"poet"}});
  core.run(kA);
  EXPECT_EQ(serving_places(core.state, kA, "poet").front(), kDevice);
  core.residency.observe(kOther, {.model = kA, .adapters = {"cook", "smith"}});
  EXPECT_EQ(serving_places(core.state, kA, "poet").front(), kDevice);
  EXPECT_EQ(serving_places(core.state, kA, "cook").front(), kOther);
  EXPECT_EQ(serving_places(core.state, kA).front(), kOther) << "without an adapter";
  core.run(kA);
  EXPECT_EQ(serving_places(core.state, kA, "poet").front(), kOther) << "two requests more";
  core.residency.observe(kDevice, {.model = kA});
  EXPECT_EQ(serving_places(core.state, kA, "poet").front(), kOther) << "it was dropped";
}

TEST(ServingPlaces, SparedOnesComeLastWhateverAdaptersTheyHave) {
  TestState core(2);
  core.serve(kA);
  core.serve(kA, kOther);
  core.residency.observe(kOther, {.model = kA, .adapters = {"poet"}});
  EXPECT_EQ(serving_places(core.state, kA, "poet").front(), kOther);
  core.residency.spare(kOther, kA, true);
  EXPECT_EQ(serving_places(core.state, kA, "poet").front(), kDevice);
}

}  // namespace
}  // namespace heddle::core::manager
