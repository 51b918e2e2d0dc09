#include "core/manager/worker_events.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/manager/test_state.h"
#include "core/manager/worker_lives.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;
using test::kA;
using test::kB;
using test::kDevice;
using test::kEngine;
using test::kGroup;
using test::kOther;
using test::kShard;
using test::kUnknown;
using test::Spots;
using test::TestState;

const Error kDisk{Code::kUnavailable, "disk"};

/// The worker of the device says so.
template <class T>
void say(TestState& core, T what, DeviceId device = kDevice) {
  hear(core.parts,
       WorkerSaid{.device = device, .epoch = core.device(device).epoch, .report = std::move(what)});
}

/// It has these models.
void report(TestState& core, std::vector<ResidentReport> models, DeviceId device = kDevice) {
  DeviceReport all;
  all.models = std::move(models);
  say(core, std::move(all), device);
}

std::uint64_t evictions(TestState& core, ModelId model, EvictionReason why) {
  return core.model(model).evictions.at(static_cast<std::size_t>(why));
}

// ---- Who speaks ----

TEST(WorkerEvents, OnlyTheWorkerThatADeviceHasIsHeard) {
  TestState core;
  core.load(kA);
  hear(core.parts,
       WorkerSaid{.device = kDevice, .epoch = WorkerEpoch(9), .report = ModelServing{.model = kA}});
  EXPECT_TRUE(core.at(kA).is<Loading>());
  hear(core.parts, WorkerSaid{.device = DeviceId(7), .report = ModelServing{.model = kA}});
  hear(core.parts, WorkerDown{.device = kDevice, .epoch = WorkerEpoch(9)});
  EXPECT_TRUE(core.device().up);
  core.devices.down(kDevice);
  say(core, ModelServing{.model = kA});
  EXPECT_TRUE(core.at(kA).is<Loading>());
}

// ---- Loads ----

TEST(WorkerEvents, AModelThatServesHasBeenLoadedWell) {
  TestState core;
  core.attempts.failed(kA, kDisk);
  core.devices.refused(kDevice);
  core.load(kA);
  say(core, ModelServing{.model = kA});
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_FALSE(core.model(kA).failure);
  EXPECT_EQ(core.model(kA).failures, 0);
  EXPECT_EQ(core.device().refusals, 0);
}

TEST(WorkerEvents, AModelThatWasSentAwayMeanwhileDoesNotServe) {
  TestState core;
  core.load(kA);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kOperator);
  say(core, ModelServing{.model = kA});
  EXPECT_TRUE(core.at(kA).is<Evicting>());
  say(core, ModelServing{.model = kB});
  EXPECT_FALSE(core.there(kB));
}

TEST(WorkerEvents, AShardThatIsThereServesNothingUntilItsGroupIsFormed) {
  TestState core(2);
  core.add_group();
  core.load_group();
  say(core, ModelServing{.model = kGroup});
  EXPECT_TRUE(core.at(kGroup).is<Loading>());

  TestState staged(2);
  staged.add_group();
  staged.residency.begin_load(kDevice, kGroup, LoadReason::kForecast, {.staged = true});
  say(staged, ModelServing{.model = kGroup});
  EXPECT_TRUE(staged.at(kGroup).is<Member>());
}

TEST(WorkerEvents, AfterALoadThatWasRefusedTheDeviceRestsAndTheModelIsPlacedAnew) {
  TestState core;
  core.load(kA);
  say(core, LoadRefused{.model = kA, .version = 5});
  EXPECT_FALSE(core.there(kA));
  EXPECT_EQ(core.device().version, 5U);
  EXPECT_GT(core.device().paused_until, core.state.now);
  EXPECT_FALSE(core.model(kA).failure) << "that is no failure of the model";
}

TEST(WorkerEvents, ARefusedLoadThatAnEvictionFollowsIsAnsweredByThat) {
  TestState core;
  core.load(kA);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kOperator);
  say(core, LoadRefused{.model = kA, .version = 5});
  EXPECT_TRUE(core.at(kA).is<Evicting>());
  EXPECT_EQ(core.device().refusals, 0);
  EXPECT_EQ(core.device().version, 5U);
}

TEST(WorkerEvents, WhatComesOfALoadOfAnEngineItsHostSays) {
  TestState core;
  core.add_engine();
  core.load(kEngine);
  say(core, LoadRefused{.model = kEngine, .version = 5});
  EXPECT_TRUE(core.at(kEngine).is<Loading>());
  EXPECT_EQ(core.device().version, 5U);
}

TEST(WorkerEvents, WhatALoadThatFailedHasLeftIsFetched) {
  TestState core;
  core.load(kA);
  core.commands.clear();
  say(core, LoadFailed{.model = kA, .version = 5, .reason = kDisk});
  ASSERT_EQ(core.evictions(), (Spots{{kDevice, kA}}));
  EXPECT_EQ(core.all<EvictFrom>()[0].mode, EvictMode::kNow);
  EXPECT_EQ(core.all<EvictFrom>()[0].basis.version, 5U);
  EXPECT_EQ(core.at(kA).as<Evicting>()->why, EvictionReason::kFailed);
  EXPECT_EQ(core.model(kA).failures, 1);
}

TEST(WorkerEvents, ALoadThatFailedWhileItWasCalledOffIsAFailureOfAWholeModel) {
  TestState core;
  core.load(kA);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kOperator);
  core.commands.clear();
  say(core, LoadFailed{.model = kA, .reason = kDisk});
  EXPECT_TRUE(core.evictions().empty());
  EXPECT_EQ(core.model(kA).failures, 1);
}

TEST(WorkerEvents, ThatAnotherShardFailsTooIsNoFurtherFailure) {
  TestState core(2);
  core.add_group();
  core.load_group();
  say(core, LoadFailed{.model = kShard, .reason = kDisk}, kOther);
  ASSERT_EQ(core.model(kGroup).failures, 1);
  core.residency.evict_here(kDevice, kGroup, EvictMode::kNow, EvictionReason::kFailed);
  say(core, LoadFailed{.model = kGroup, .reason = kDisk});
  EXPECT_EQ(core.model(kGroup).failures, 1);
}

TEST(WorkerEvents, OfAnImageThatCannotBeHadNothingIsLeft) {
  TestState core;
  core.load(kA);
  const WorkerEpoch epoch = core.device().epoch;
  hear(core.parts,
       ImageFailed{.device = kDevice, .epoch = WorkerEpoch(9), .model = kA, .reason = kDisk});
  EXPECT_TRUE(core.there(kA)) << "that is another worker's";
  hear(core.parts, ImageFailed{.device = kDevice, .epoch = epoch, .model = kA, .reason = kDisk});
  EXPECT_FALSE(core.there(kA));
  EXPECT_EQ(core.model(kA).failures, 1);
}

TEST(WorkerEvents, AnImageThatCannotBeHadForAModelThatLeavesIsAFailureOfAWholeModel) {
  TestState core(2);
  core.add_group();
  core.load(kA);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kOperator);
  core.residency.begin_load(kOther, kShard, LoadReason::kRequest, {.leader = kDevice});
  core.residency.evict_here(kOther, kShard, EvictMode::kNow, EvictionReason::kFailed);
  for (const auto& [device, model] : {std::pair{kDevice, kA}, {kOther, kShard}}) {
    hear(
        core.parts,
        ImageFailed{
            .device = device, .epoch = core.device(device).epoch, .model = model, .reason = kDisk});
  }
  EXPECT_TRUE(core.there(kA)) << "its eviction is answered, too";
  EXPECT_EQ(core.model(kA).failures, 1);
  EXPECT_EQ(core.model(kGroup).failures, 0) << "another shard has failed before";
}

TEST(WorkerEvents, AGroupServesWhenItsWorkersHaveFormedIt) {
  TestState core(2);
  core.add_group();
  core.attempts.failed(kGroup, kDisk);
  core.devices.refused(kOther);
  core.load_group();
  const GroupFormed formed{.device = kDevice, .epoch = core.device().epoch, .model = kGroup};
  hear(core.parts, formed);
  EXPECT_TRUE(core.at(kGroup).is<Loading>()) << "nobody has asked for that";
  core.residency.form(kGroup, kDevice);
  hear(core.parts, GroupFormed{.device = kDevice, .epoch = WorkerEpoch(9), .model = kGroup});
  EXPECT_TRUE(core.at(kGroup).is<Loading>()) << "that is another worker's";
  hear(core.parts, formed);
  EXPECT_TRUE(core.at(kGroup).is<Serving>());
  EXPECT_TRUE(core.at(kShard, kOther).is<Member>());
  EXPECT_FALSE(core.model(kGroup).failure);
  EXPECT_EQ(core.device(kOther).refusals, 0);
}

TEST(WorkerEvents, AGroupThatWasSentAwayMeanwhileDoesNotServe) {
  TestState core(2);
  core.add_group();
  core.load_group();
  core.residency.form(kGroup, kDevice);
  core.residency.evict(kDevice, kGroup, EvictMode::kNow, EvictionReason::kOperator);
  const GroupFormed formed{.device = kDevice, .epoch = core.device().epoch, .model = kGroup};
  hear(core.parts, formed);
  EXPECT_TRUE(core.at(kGroup).is<Evicting>());
  core.residency.lose(kDevice, kGroup);
  hear(core.parts, formed);
  EXPECT_FALSE(core.there(kGroup));
}

// ---- Evictions ----

TEST(WorkerEvents, AModelThatWasEvictedIsGoneAndCountedAndLeavesRoom) {
  TestState core;
  core.serve(kA);
  core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kIdle);
  say(core, ModelEvicted{.model = kA});
  EXPECT_FALSE(core.there(kA));
  EXPECT_EQ(evictions(core, kA, EvictionReason::kIdle), 1U);
  EXPECT_TRUE(core.loading.unfinished());
  say(core, ModelEvicted{.model = kA});
  EXPECT_EQ(evictions(core, kA, EvictionReason::kIdle), 1U);
}

TEST(WorkerEvents, AModelWhoseEvictionWasRefusedServesOn) {
  TestState core;
  core.serve(kA);
  core.residency.evict(kDevice, kA, EvictMode::kWhenIdle, EvictionReason::kIdle);
  say(core, EvictRefused{.model = kA, .version = 5});
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_EQ(core.device().version, 5U);
  core.load(kB);
  say(core, EvictRefused{.model = kB, .version = 6});
  EXPECT_TRUE(core.at(kB).is<Loading>());
}

// ---- Requests ----

TEST(WorkerEvents, AModelThatGivesARequestBackIsSentNothingMore) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  say(core, RequestReturned{.request = id});
  EXPECT_TRUE(core.at(kA).is<Draining>());
  EXPECT_FALSE(core.state.requests.at(id).device);
  EXPECT_EQ(core.model(kA).recalled, 0U);
}

TEST(WorkerEvents, AModelThatLeavesGivesItsRequestsBackAndLeaves) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  core.residency.evict(kDevice, kA, EvictMode::kNow, EvictionReason::kOutgrown);
  say(core, RequestReturned{.request = id});
  EXPECT_TRUE(core.at(kA).is<Evicting>());
  EXPECT_EQ(core.model(kA).waiting.size(), 1U);
}

TEST(WorkerEvents, AModelWhoseRequestWasRecalledStays) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  say(core, RequestReturned{.request = id, .recalled = true});
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_FALSE(core.state.requests.at(id).device);
  EXPECT_EQ(core.model(kA).recalled, 1U);
}

TEST(WorkerEvents, WhatAWorkerSaysOfARequestThatIsNotThereIsNotHeard) {
  TestState core(2);
  core.serve(kA);
  const RequestId id = core.run(kA);
  say(core, RequestReturned{.request = id}, kOther);
  say(core, RequestFailed{.request = id, .error = kDisk}, kOther);
  say(core, RequestFailed{.request = RequestId(99), .error = kDisk});
  EXPECT_EQ(core.state.requests.at(id).device, kDevice);
  EXPECT_TRUE(core.at(kA).is<Serving>());
  EXPECT_TRUE(core.failed().empty());
}

TEST(WorkerEvents, ARequestThatCannotBeRunFailsWithWhatItsWorkerSaid) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  say(core, RequestFailed{.request = id, .error = {Code::kInvalidArgument, "bad grammar"}});
  ASSERT_EQ(core.failed(), std::vector{id});
  EXPECT_EQ(core.all<FailRequest>()[0].error.code, Code::kInvalidArgument);
  EXPECT_EQ(core.all<FailRequest>()[0].error.message, "bad grammar");
  EXPECT_TRUE(core.all<TellWorker>().empty()) << "the worker knows";
}

// ---- Reports ----

TEST(WorkerEvents, AReportSaysWhatThereIsAndWhatIsShort) {
  TestState core;
  core.serve(kA);
  DeviceReport all;
  all.version = 5;
  all.usage.free = 3;
  all.models = {{.model = kA, .residency = core::Residency::kServing, .kv_pages = 4}};
  all.short_sequences = 2;
  all.short_pages = 6;
  all.short_model = kA;
  say(core, all);
  EXPECT_EQ(core.device().version, 5U);
  EXPECT_EQ(core.device().usage.free, 3);
  EXPECT_EQ(core.at(kA).kv_pages, 4);
  EXPECT_EQ(core.device().shortage.sequences, 2);
  EXPECT_EQ(core.device().shortage.pages, 6);
  EXPECT_EQ(core.device().shortage.model, kA);
}

TEST(WorkerEvents, HowLongALoadTookIsLearntWhenItIsCompleteAndOnce) {
  TestState core;
  core.load(kA);
  core.pass(3s);
  report(core, {{.model = kA}});
  EXPECT_EQ(core.model(kA).load_times[0], 0s);
  report(core, {{.model = kA, .complete = true}});
  EXPECT_EQ(core.model(kA).load_times[0], 3s);
  core.pass(3s);
  report(core, {{.model = kA, .complete = true}});
  EXPECT_EQ(core.model(kA).load_times[0], 3s);
}

TEST(WorkerEvents, WhatAReportDoesNotNameIsGone) {
  TestState core;
  core.serve(kA);
  const RequestId id = core.run(kA);
  core.serve(kB);
  report(core, {{.model = kB}});
  EXPECT_FALSE(core.there(kA));
  EXPECT_FALSE(core.state.requests.at(id).device) << "its requests wait again";
  EXPECT_TRUE(core.there(kB));

  TestState group(2);
  group.add_group();
  group.serve_group();
  report(group, {}, kOther);
  EXPECT_FALSE(group.there(kShard, kOther));
}

TEST(WorkerEvents, WhatComesOrGoesOrIsAnEngineNoReportHasToName) {
  TestState core;
  core.add_engine();
  core.serve(kEngine);
  core.load(kA);
  core.serve(kB);
  core.residency.evict(kDevice, kB, EvictMode::kWhenIdle, EvictionReason::kIdle);
  report(core, {});
  EXPECT_TRUE(core.there(kA)) << "the report may be older than the load";
  EXPECT_TRUE(core.there(kB)) << "its eviction is answered";
  EXPECT_TRUE(core.there(kEngine));
}

TEST(WorkerEvents, AModelThatGaveRequestsBackAndStayedIsSentRequestsAgain) {
  for (const core::Residency seen :
       {core::Residency::kWarm, core::Residency::kServing, core::Residency::kDraining}) {
    TestState core;
    core.serve(kA);
    core.residency.drain(kDevice, kA);
    report(core, {{.model = kA, .residency = seen}});
    EXPECT_EQ(core.at(kA).is<Serving>(), seen != core::Residency::kDraining);
  }
}

TEST(WorkerEvents, AModelThatIsToLeaveIsNotSentRequestsAgain) {
  TestState core;
  core.serve(kA);
  core.run(kA);
  core.plans.begin(kDevice, kB, {kA});
  report(core, {{.model = kA, .residency = core::Residency::kServing}});
  EXPECT_TRUE(core.at(kA).is<Draining>());
}

TEST(WorkerEvents, PagesThatAWorkerWantsAreFoundUntilItHasThem) {
  TestState core;
  core.add_engine(9);
  core.serve(kA);
  core.run(kA);
  core.serve(kEngine);
  core.run(kEngine);
  DeviceReport wants;
  wants.models = {{.model = kA, .residency = core::Residency::kServing}};
  wants.pages_wanted = 2;
  wants.wanted_by = kA;
  say(core, wants);
  ASSERT_TRUE(core.device().plan);
  EXPECT_EQ(core.device().plan->lacks, 2);
  wants.pages_wanted = 0;
  say(core, wants);
  EXPECT_FALSE(core.device().plan);
}

// ---- Deaths ----

}  // namespace
}  // namespace heddle::core::manager
