#include "core/manager/worker_lives.h"

#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/status.h"
#include "core/manager/test_cuts.h"
#include "core/manager/worker_events.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::FourHosts;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kQuarters;
using test::TestState;

/// The worker's life ends, and its front says so.
void lose(TestState& core, const WorkerDown& down, std::vector<RequestId> advanced = {}) {
  hear(core.parts, down);
  PlaceLost lost{.device = down.device, .epoch = down.epoch, .advanced = std::move(advanced)};
  for (const auto& [id, request] : core.state.requests) {
    lost.requests.push_back(id);
  }
  hear(core.parts, lost);
}

void die(TestState& core, DeviceId device = kDevice) {
  lose(core, WorkerDown{.device = device, .epoch = core.device(device).epoch});
}

/// It was killed, after it had given a token to these requests.
void kill(TestState& core, std::vector<RequestId> advanced = {}) {
  lose(core,
       WorkerDown{.device = kDevice, .epoch = core.device().epoch, .killed = true},
       std::move(advanced));
}

void come_up(TestState& core) {
  const WorkerEpoch next(core.device().epoch.value() + 1);
  hear(core.parts, WorkerUp{.device = kDevice, .epoch = next});
}

TEST(WorkerLives, AWorkerThatComesUpIsRoomForWhatIsExpected) {
  TestState core;
  core.devices.down(kDevice);
  come_up(core);
  EXPECT_TRUE(core.device().up);
  EXPECT_EQ(core.device().epoch, WorkerEpoch(2));
  EXPECT_TRUE(core.loading.unfinished());
}

TEST(WorkerLives, WithAWorkerItsModelsAreGoneAndEnginesStay) {
  TestState core;
  core.add_engine();
  core.serve(kA);
  core.serve(kEngine);
  const RequestId id = core.run(kA);
  core.shortages.heard(kDevice, {.short_sequences = 2, .short_pages = 3, .short_model = kA});
  die(core);
  EXPECT_FALSE(core.device().up);
  EXPECT_FALSE(core.there(kA));
  EXPECT_TRUE(core.at(kEngine).is<Serving>());
  EXPECT_EQ(core.device().shortage.sequences, 0);
  EXPECT_FALSE(core.state.requests.at(id).device);
  EXPECT_EQ(core.state.requests.at(id).deaths, 1);
  EXPECT_TRUE(core.failed().empty());
}

TEST(WorkerLives, WhatWasToComeToADeadWorkerIsCalledOff) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.run(kEngine);
  core.wait(kB);
  core.plans.begin(kDevice, kB, {kEngine});
  die(core);
  EXPECT_FALSE(core.device().plan);
  EXPECT_TRUE(core.at(kEngine).is<Serving>());

  TestState claimed(2);
  claimed.add_group();
  claimed.serve(kA);
  claimed.run(kA);
  claimed.wait(kGroup);
  claimed.claims.claim(kGroup, kDevice);
  ASSERT_TRUE(claimed.model(kGroup).claim);
  die(claimed, kOther);
  EXPECT_FALSE(claimed.model(kGroup).claim);
  EXPECT_FALSE(claimed.device().claimed);
  EXPECT_TRUE(claimed.at(kA).is<Serving>());
}

TEST(WorkerLives, AWorkerThatDiesWhileItLoadsIsAFailureOfThatModelAlone) {
  TestState core;
  core.serve(kB);
  core.load(kA);
  die(core);
  EXPECT_EQ(core.model(kA).failures, 1);
  EXPECT_EQ(core.model(kB).failures, 0);
}

TEST(WorkerLives, OfWorkersThatAreKilledWhileTheyLoadTheThirdIsAFailure) {
  TestState core;
  for (int deaths = 1; deaths <= 3; ++deaths) {
    core.load(kA);
    kill(core);
    EXPECT_EQ(core.model(kA).failures, deaths == 3 ? 1 : 0);
    come_up(core);
  }
}

/// A request of A, and one of B beside it unless it is to run alone.
struct Company : TestState {
  explicit Company(bool alone = false) {
    serve(kA);
    id = run(kA);
    if (!alone) {
      serve(kB);
      run(kB);
    }
  }
  [[nodiscard]] std::int32_t deaths() const { return state.requests.at(id).deaths; }
  RequestId id{};
};

TEST(WorkerLives, WhereTheWholeIsBesideItsStagesARequestIsTakenToRunInThese) {
  FourHosts core;
  core.start_in_stages();
  EXPECT_EQ(runs_as(core.state, kDevice, kA), kQuarters) << "the whole is on its way";
  core.arrive_all();
  ASSERT_TRUE(core.at(kA).is<Serving>());
  EXPECT_EQ(runs_as(core.state, kDevice, kA), kQuarters);
  EXPECT_EQ(runs_as(core.state, core.at_host(1), kA), std::nullopt) << "a follower runs none";
}

TEST(WorkerLives, TheThirdWorkerThatDiesUnderARequestIsItsOwnFault) {
  Company core;
  core.queues.died(core.id);
  core.queues.died(core.id);
  die(core);
  ASSERT_EQ(core.failed(), std::vector{core.id});
  EXPECT_EQ(core.all<FailRequest>()[0].error.code, Code::kUnavailable);
}

TEST(WorkerLives, AWorkerThatDiesWithARequestThatHasItToItselfIsItsFaultAtOnce) {
  Company core(true);
  core.queues.keep_alone(kDevice, core.id);
  die(core);
  EXPECT_EQ(core.failed(), std::vector{core.id});
  EXPECT_FALSE(core.device().alone);
}

TEST(WorkerLives, ALostRequestIsNowhereUntilItsFrontSaysSo) {
  Company core;
  const WorkerEpoch epoch = core.device().epoch;
  const PlaceLost lost{.device = kDevice, .epoch = epoch, .requests = {core.id}};
  hear(core.parts, WorkerDown{.device = kDevice, .epoch = epoch});
  const RequestState& request = core.state.requests.at(core.id);
  EXPECT_FALSE(request.device);
  EXPECT_TRUE(request.lost);
  EXPECT_TRUE(core.model(request.model).waiting.empty());
  check_invariants(core.state);
  hear(core.parts, PlaceLost{.device = kDevice, .epoch = WorkerEpoch(99), .requests = {core.id}});
  EXPECT_TRUE(request.lost) << "of another life";
  hear(core.parts, lost);
  EXPECT_FALSE(request.lost);
  EXPECT_EQ(core.model(request.model).waiting.size(), 1U);
  EXPECT_EQ(core.deaths(), 1);
  hear(core.parts, lost);
  EXPECT_EQ(core.deaths(), 1) << "it waits already";
}

TEST(WorkerLives, ALostRequestCanEnd) {
  Company core;
  hear(core.parts, WorkerDown{.device = kDevice, .epoch = core.device().epoch});
  core.commands.clear();
  core.queues.cancel(core.id);
  EXPECT_TRUE(core.commands.empty()) << "no worker has it";
  check_invariants(core.state);
  hear(core.parts,
       PlaceLost{.device = kDevice, .epoch = core.device().epoch, .requests = {core.id}});
  EXPECT_FALSE(core.state.requests.contains(core.id));
}

TEST(WorkerLives, AFrontThatIsCutOffFromAWorkerTakesItsRequestsBack) {
  Company core;
  core.commands.clear();
  hear(core.parts,
       PlaceLost{.device = kDevice, .epoch = core.device().epoch, .requests = {core.id}});
  const RequestState& request = core.state.requests.at(core.id);
  EXPECT_FALSE(request.device);
  EXPECT_EQ(core.model(request.model).waiting.size(), 1U);
  EXPECT_EQ(core.deaths(), 0) << "the worker lives";
  check_invariants(core.state);
}

TEST(WorkerLives, ARequestThatCameFurtherIsNotBlamedForAWorkerThatWasKilled) {
  Company core;
  core.queues.died(core.id);
  kill(core, {core.id});
  EXPECT_EQ(core.deaths(), 0);

  Company died;
  lose(died, WorkerDown{.device = kDevice, .epoch = died.device().epoch}, {died.id});
  EXPECT_EQ(died.deaths(), 1) << "a worker that dies by itself may die of it";
}

TEST(WorkerLives, WorkersThatAreKilledUnderARequestInCompanyHaveItRunAloneAndDoNotFailIt) {
  Company core;
  for (int i = 0; i < 2; ++i) {
    core.queues.died(core.id);
  }
  kill(core);
  EXPECT_TRUE(core.failed().empty());
  EXPECT_EQ(core.deaths(), kDeathsInCompany);

  Company alone(true);
  alone.queues.keep_alone(kDevice, alone.id);
  kill(alone);
  EXPECT_EQ(alone.failed(), std::vector{alone.id});
}

TEST(WorkerLives, ADeviceThatWasKeptForARequestIsFreeWhenItsWorkerDies) {
  Company core;
  const RequestId waits = core.wait(kA);
  core.queues.keep_alone(kDevice, waits);
  die(core);
  EXPECT_FALSE(core.device().alone);
  EXPECT_TRUE(core.failed().empty());
}

// ---- Hosts that are cut off, and managers that are new ----

WorkerFound found(const TestState& core,
                  DeviceId device = kDevice,
                  std::vector<ResidentReport> models = {}) {
  return {.device = device,
          .epoch = core.state.devices.at(device).epoch,
          .report = {.version = 7, .usage = {.total = 20, .free = 3}, .models = std::move(models)}};
}

TEST(WorkerLives, WhatRunsOnAHostThatIsCutOffWaitsForNewsOfIt) {
  TestState core(2);
  core.serve(kA);
  core.serve(kB, kOther);
  const RequestId id = core.run(kA);
  hear(core.parts, HostLost{.host = HostId(3)});
  EXPECT_TRUE(core.device().up) << "it was another host";
  hear(core.parts, HostLost{.host = HostId(0)});
  EXPECT_FALSE(core.device().up);
  EXPECT_FALSE(core.device(kOther).up);
  EXPECT_FALSE(core.there(kA));
  EXPECT_TRUE(core.state.requests.at(id).lost.has_value());
  EXPECT_EQ(core.model(kA).failures, 0);
  check_invariants(core.state);

  hear(core.parts,
       found(core,
             kDevice,
             {{.model = kA, .residency = core::Residency::kServing, .complete = true}}));
  EXPECT_TRUE(core.device().up);
  EXPECT_EQ(core.device().restarts, 0U) << "the worker lived on";
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_EQ(core.at(kA).in_flight, std::set{id});
  EXPECT_EQ(core.device().version, 7U);
  EXPECT_EQ(core.device().usage.free, 3);
  EXPECT_FALSE(core.device(kOther).up);
  check_invariants(core.state);
}

TEST(WorkerLives, TheLossOfAHostIsHeldAgainstNoRequest) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  const PlaceLost place{.device = kDevice, .epoch = core.device().epoch, .requests = {id}};
  hear(core.parts, HostLost{.host = HostId(0)});
  hear(core.parts, place);
  EXPECT_FALSE(core.state.requests.at(id).lost.has_value());
  EXPECT_EQ(core.state.requests.at(id).deaths, 0);
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
  check_invariants(core.state);
}

TEST(WorkerLives, AWorkerThatIsFoundAndHasSaidNothingYetHasAllItsPages) {
  TestState core;
  const std::int64_t pages = core.device().usage.total;
  ASSERT_GT(pages, 0);
  hear(core.parts, HostLost{.host = HostId(0)});
  WorkerFound silent = found(core);
  silent.report = {};
  hear(core.parts, silent);
  EXPECT_EQ(core.device().usage.total, pages);
  EXPECT_EQ(core.device().usage.free, pages);
  check_invariants(core.state);
}

TEST(WorkerLives, AHostTakesItsLoansWithIt) {
  TestState core;
  core.guests.heard({.device = kDevice, .model = kA, .pages = 2});
  hear(core.parts, HostLost{.host = HostId(0)});
  EXPECT_TRUE(core.device().guests.empty());
  check_invariants(core.state);
}

TEST(WorkerLives, AWorkerThatIsFoundInAnotherLifeHasDiedUnheard) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  WorkerFound next = found(core);
  next.epoch = WorkerEpoch(5);
  hear(core.parts, next);
  EXPECT_EQ(core.device().epoch, WorkerEpoch(5));
  EXPECT_FALSE(core.there(kA));
  EXPECT_EQ(core.state.requests.at(id).lost->epoch, WorkerEpoch(1));
  hear(core.parts, WorkerUp{.device = kDevice, .epoch = WorkerEpoch(4)});
  EXPECT_EQ(core.device().epoch, WorkerEpoch(5)) << "an earlier life is over";
  hear(core.parts, WorkerUp{.device = DeviceId(77), .epoch = WorkerEpoch(4)});
  check_invariants(core.state);
}

TEST(WorkerLives, AnAdoptedModelIsInTheStageThatItsWorkerSays) {
  TestState core(2);
  core.add_group();
  hear(core.parts, HostLost{.host = HostId(0)});
  hear(core.parts,
       found(core,
             kDevice,
             {{.model = kA, .residency = core::Residency::kLoading},
              {.model = kB, .residency = core::Residency::kDraining},
              {.model = kGroup, .residency = core::Residency::kWarm, .complete = true},
              {.model = test::kUnknown, .residency = core::Residency::kServing}}));
  EXPECT_TRUE(core.at(kA).is<Loading>());
  EXPECT_TRUE(core.at(kB).is<Evicting>());
  EXPECT_TRUE(core.at(kGroup).staged());
  EXPECT_TRUE(core.at(kGroup).is<Member>());
  EXPECT_EQ(core.device().instances.size(), 3U) << "nothing is known of the fourth";
  const std::vector<EvictFrom> sent_away = core.all<EvictFrom>();
  ASSERT_EQ(sent_away.size(), 1U);
  EXPECT_EQ(sent_away[0],
            (EvictFrom{.device = kDevice,
                       .model = test::kUnknown,
                       .basis = {.epoch = core.device().epoch, .version = 7},
                       .mode = EvictMode::kNow}));
}

TEST(WorkerLives, AGroupThatIsSaidToBeFormedRunsOnAsItDid) {
  TestState core(2);
  core.add_group();
  core.state.settled = false;
  hear(core.parts, HostLost{.host = HostId(0)});
  const GroupFormed formed{.device = kDevice, .epoch = core.device().epoch, .model = kGroup};
  const auto shard = [](ModelId model) {
    return std::vector<ResidentReport>{
        {.model = model, .residency = core::Residency::kServing, .complete = true}};
  };
  hear(core.parts, found(core, kDevice, shard(kGroup)));
  EXPECT_TRUE(core.at(kGroup).staged());
  hear(core.parts, found(core, kOther, shard(test::kShard)));
  hear(core.parts, formed);
  EXPECT_TRUE(core.at(kGroup).is<Serving>());
  EXPECT_TRUE(core.at(test::kShard, kOther).is<Member>());
  EXPECT_EQ(core.at(test::kShard, kOther).part().leader, kDevice);
  check_invariants(core.state);
}

}  // namespace
}  // namespace heddle::core::manager
