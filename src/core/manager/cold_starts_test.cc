#include "core/manager/cold_starts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/manager/status.h"
#include "core/manager/test_cuts.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::FourHosts;
using test::kA;
using test::kB;
using test::kDevice;
using test::kHalves;
using test::kQuarters;
using test::Spots;
using testing::HasSubstr;

/// The model that the first stage is.
ModelId cut_of(const CutStart& start) {
  return start.places.front().stage.model;
}

TEST(ColdStarts, AreAsWideAsTheObjectiveNeeds) {
  // One host fetches for 8 s, two for 4.5 s, four for 2.3 s.
  for (const auto& [ttft, cut] : {std::pair{10s, ModelId{}}, {6s, kHalves}, {3s, kQuarters}}) {
    FourHosts core;
    core.want(ttft);
    core.wait(kA);
    const auto start = choose_cut_start(core.state, kA);
    EXPECT_EQ(start ? cut_of(*start) : ModelId{}, cut) << ttft.count();
  }
}

TEST(ColdStarts, AreSoonestWhereNoObjectiveIsKept) {
  FourHosts core;
  core.want(100ms);
  core.wait(kA);
  const auto start = choose_cut_start(core.state, kA);
  ASSERT_TRUE(start);
  EXPECT_EQ(cut_of(*start), kQuarters);
  EXPECT_EQ(start->places[0].stage.device, kDevice);
  EXPECT_EQ(start->places.size(), 4U);
  EXPECT_THAT(start->because, HasSubstr("a request waits; in 4 stages on d0, h1, h2, h3"));
  EXPECT_THAT(start->because, HasSubstr("best_effort"));
}

TEST(ColdStarts, KnowWhatTheModelTakesWhereItIsWarm) {
  FourHosts core;
  core.want(6s);
  core.demand.observe_warm(kA, 2s, 5ms);
  core.wait(kA);
  const auto start = choose_cut_start(core.state, kA);
  ASSERT_TRUE(start);
  EXPECT_EQ(cut_of(*start), kQuarters)
      << "two stages have the weights in 4.5 s, and the prompt takes 2 s";
}

TEST(ColdStarts, AreSoonestWhereTokensAreTooSlowAnyway) {
  FourHosts core;
  core.configuration.models.front().slo.tpot = 1ms;
  core.want(6s);
  core.demand.observe_warm(kA, 100ms, 5ms);
  core.wait(kA);
  const auto start = choose_cut_start(core.state, kA);
  ASSERT_TRUE(start);
  EXPECT_EQ(cut_of(*start), kQuarters);
}

TEST(ColdStarts, AreForRequestsThatWait) {
  FourHosts core;
  core.want(3s);
  EXPECT_FALSE(choose_cut_start(core.state, kA));
  core.wait(kB);
  EXPECT_FALSE(choose_cut_start(core.state, kB)) << "it is not cut";
}

TEST(ColdStarts, AreWholeWhereOneHostHasTheFiles) {
  FourHosts core;
  core.want(3s);
  core.wait(kA);
  core.catalog.image({.model = kA, .bytes = 80'000'000, .host_cached = true, .host = HostId(2)});
  EXPECT_FALSE(choose_cut_start(core.state, kA));
}

TEST(ColdStarts, LeaveDevicesAloneThatAreInUse) {
  FourHosts core;
  core.want(3s);
  core.serve(kB, core.at_host(1));
  core.run(kB, core.at_host(1));
  core.serve(kB, core.at_host(2));
  core.wait(kA);
  const auto start = choose_cut_start(core.state, kA);
  ASSERT_TRUE(start) << "two stages are better than one, though both are late";
  EXPECT_EQ(cut_of(*start), kHalves);
  EXPECT_EQ(start->places[0].stage.device, kDevice);
  ASSERT_EQ(start->places.size(), 2U);
  EXPECT_EQ(start->places[1].stage.device, core.at_host(3)) << "nothing is there";
}

TEST(ColdStarts, DriveOutOnlyWhoIsInTheWay) {
  FourHosts core;
  core.want(3s);
  core.serve(kB, core.at_host(1));
  core.wait(kA);
  core.passes();
  EXPECT_EQ(core.loads().size(), 4U);
  EXPECT_TRUE(core.evictions().empty()) << "a stage has room beside it";
  EXPECT_TRUE(core.at(kB, core.at_host(1)).is<Serving>());

  FourHosts crowded;
  crowded.want(3s);
  crowded.resize(crowded.at_host(1), 10);  // A stage takes 2 and one of KV, the other model 8.
  crowded.serve(kB, crowded.at_host(1));
  crowded.wait(kA);
  crowded.passes();
  EXPECT_EQ(crowded.loads().size(), 4U);
  EXPECT_EQ(crowded.evictions(), (Spots{{crowded.at_host(1), kB}}));
  check_invariants(crowded.state);
}

TEST(ColdStarts, LetOtherModelsComeBesideTheirStages) {
  FourHosts core;
  core.start_in_stages();
  core.commands.clear();
  core.wait(kB);
  core.passes();
  ASSERT_EQ(core.loads().size(), 1U);
  EXPECT_EQ(core.loads()[0].second, kB);
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_TRUE(core.at(kQuarters).is<Serving>());
  check_invariants(core.state);
}

TEST(ColdStarts, WhatOtherHostsFetchCounts) {
  FourHosts core;
  core.configuration.models.at(1).fetched = {{HostId(1), 80'000'000}, {HostId(3), 80'000'000}};
  core.want(6s);
  core.load(kB, core.at_host(1));
  core.load(kB, core.at_host(3));
  core.wait(kA);
  const auto start = choose_cut_start(core.state, kA);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->places[0].stage.device, kDevice);
  ASSERT_EQ(start->places.size(), 2U);
  EXPECT_EQ(start->places[1].stage.device, core.at_host(2)) << "its network is free";
}

TEST(ColdStarts, DoNotTryWhatHasJustFailed) {
  FourHosts core;
  core.want(3s);
  core.wait(kA);
  core.attempts.failed(core.stage(kQuarters, 2), {Code::kUnavailable, "no"});
  const auto start = choose_cut_start(core.state, kA);
  ASSERT_TRUE(start);
  EXPECT_EQ(cut_of(*start), kHalves);
  EXPECT_EQ(core.model(kA).failures, 0) << "the model itself can be had";
}

TEST(ColdStarts, HaveRoomForTheLongestRequest) {
  FourHosts core;
  core.want(3s);
  core.wait(kA, 150);  // A device with a quarter of the weights has 18 pages of 8 tokens.
  EXPECT_FALSE(choose_cut_start(core.state, kA));
}

TEST(ColdStarts, LoadEachStageOnAHostAndServeWithAllOfThem) {
  FourHosts core;
  core.want(3s);
  const RequestId id = core.wait(kA);
  core.passes();
  EXPECT_EQ(core.loads(),
            (Spots{{kDevice, kQuarters},
                   {core.at_host(1), core.stage(kQuarters, 1)},
                   {core.at_host(2), core.stage(kQuarters, 2)},
                   {core.at_host(3), core.stage(kQuarters, 3)}}));
  check_invariants(core.state);
  core.passes();
  EXPECT_EQ(core.loads().size(), 4U) << "it is under way";
  EXPECT_EQ(model_statuses(core.state).at(0).residency, core::Residency::kLoading);
  EXPECT_EQ(model_statuses(core.state).at(0).peers.size(), 3U);

  core.arrive_all();
  core.passes();
  check_invariants(core.state);
  const auto sent = core.all<Dispatch>();
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].request, id);
  EXPECT_EQ(sent[0].device, kDevice);
  EXPECT_EQ(sent[0].as, kQuarters);
  const ModelStatus status = model_statuses(core.state).at(0);
  EXPECT_EQ(status.name, "a");
  EXPECT_EQ(status.residency, core::Residency::kServing);
  EXPECT_EQ(status.requests_running, 1);
  EXPECT_EQ(device_statuses(core.state).at(3).residents.at(0).model, "a");
}

TEST(ColdStarts, HostsPromiseTheirStagesByTheRequestsDeadline) {
  FourHosts core;
  core.want(3s);
  core.wait(kA);
  core.passes();
  for (std::uint64_t host = 0; host < 4; ++host) {
    const auto& fetches = core.state.networks.at(HostId(host)).fetches();
    ASSERT_EQ(fetches.size(), 1U);
    EXPECT_EQ(fetches[0].bytes, 20'000'000);
    EXPECT_EQ(fetches[0].deadline, core.state.now + 3s);
  }
}

TEST(ColdStarts, AStageThatDiesTakesTheOthersAlongAndTheRequestWaitsAgain) {
  FourHosts core;
  const RequestId id = core.start_in_stages();
  ASSERT_EQ(core.state.requests.at(id).as, kQuarters);
  core.residency.forget(core.at_host(2), core.stage(kQuarters, 2));
  core.passes();
  core.evict_all();
  EXPECT_TRUE(core.model(kA).waiting.contains({.order = 1}));
  core.commands.clear();
  core.passes();
  check_invariants(core.state);
  EXPECT_EQ(core.loads(), Spots{}) << "the whole is on its way";
}

TEST(ColdStarts, AnOperatorUnloadsTheModelInWhateverForm) {
  FourHosts core;
  const RequestId id = core.start_in_stages();
  core.tickets.ask(AdminUnload{.ticket = TicketId(1), .model = kA});
  core.passes();
  EXPECT_TRUE(core.all<AdminDone>().empty()) << "its request runs";
  core.finish(id);
  core.passes();
  core.evict_all();
  core.passes();
  core.evict_all();
  core.passes();
  EXPECT_EQ(core.places(), Spots{});
  EXPECT_EQ(core.all<AdminDone>().size(), 1U);
}

TEST(ColdStarts, AModelThatIsConfiguredNoMoreIsForgottenWithItsCuts) {
  FourHosts core;
  const RequestId id = core.start_in_stages();
  std::erase_if(core.configuration.models,
                [](const ManagerModel& model) { return model.id != kB; });
  core.reconfigure();
  core.passes();
  EXPECT_TRUE(core.state.models.contains(kA)) << "its request runs";
  core.finish(id);
  for (int i = 0; i < 4; ++i) {
    core.passes();
    check_invariants(core.state);
    core.evict_all();
  }
  EXPECT_EQ(core.state.models.size(), 1U);
}

}  // namespace
}  // namespace heddle::core::manager
