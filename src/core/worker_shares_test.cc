// WorkerCore with shards of a group: the share of KV that all ranks have alike, beside other
// models.

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/test_find.h"
#include "core/test_worker.h"
#include "core/worker_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;
using test::submit_of;

constexpr ModelId kShard{1};
constexpr ModelId kSmall{2};

LoadModel load(ModelId model, std::int64_t pages) {
  return test::load_of(model, pages, 2);
}

/// A core of a rank that is told events, with a shard of 8 pages: 31 of 40 are free then.
struct ShareBench : test::TestWorker {
  explicit ShareBench(bool leads, std::int64_t batch_tokens = 64) {
    core = WorkerCore({.epoch = WorkerEpoch(1),
                       .pages = test::kWorkerPages,
                       .step = {.budget = 10ms, .max_batch_tokens = batch_tokens}});
    serve(load(kShard, 8));
    tell(GroupJoined{.model = kShard, .leads = leads});
  }
  /// A step of what it would run next, in which these starve and the others get on by one token.
  void step(const std::set<SequenceId>& starved, const KvCounted& counted) {
    const auto commands = tell(EngineIdle{});
    const auto* run = find<RunStep>(commands);
    ASSERT_NE(run, nullptr);
    StepDone done{.counted = counted, .took = 1ms};
    for (const policy::ModelBatch& batch : run->plan.batches) {
      for (const policy::StepSlice& slice : batch.slices) {
        if (starved.contains(slice.sequence)) {
          done.starved.push_back(slice.sequence);
        } else {
          known[slice.sequence] += slice.tokens;
          done.slices.push_back({.sequence = slice.sequence,
                                 .computed = known[slice.sequence],
                                 .token = 5,
                                 .position = generated[slice.sequence]++});
        }
      }
    }
    tell(done);
  }
  /// Its one request cannot go on: it asked for a larger share twice and got none.
  void stall(std::size_t prompt = 8) {
    tell(WorkerMessage{submit_of(1, kShard, prompt, 100)});
    tell(EngineIdle{});
    tell(ShareSet{.model = kShard, .pages = 2});
    step({SequenceId(1)}, {.kv = {{.model = kShard, .pages = 2}}});
    now += 60ms;
    tell(EngineIdle{});
    tell(ShareSet{.model = kShard, .pages = 2});
  }
  [[nodiscard]] std::int64_t share() const {
    return core.report().usage.of(ledger::LeaseKind::kShardPipe).held;
  }

  std::map<SequenceId, std::int64_t> known{};
  std::map<SequenceId, std::int64_t> generated{};
};

TEST(WorkerShares, TheLeaderAsksForWhatARequestNeedsAndAQuarterMore) {
  ShareBench leader(true);
  EXPECT_EQ(leader.share(), 0);
  leader.tell(WorkerMessage{submit_of(1, kShard, 44, 100)});
  const auto asked = leader.tell(EngineIdle{});
  ASSERT_NE(find<SizeShare>(asked), nullptr);
  EXPECT_EQ(find<SizeShare>(asked)->pages, 10) << "64 tokens are 8 pages";
  EXPECT_EQ(find<RunStep>(asked), nullptr) << "no step before the ranks have met";
  EXPECT_TRUE(leader.tell(EngineIdle{}).empty());
  leader.tell(ShareSet{.model = kShard, .pages = 10});
  EXPECT_EQ(leader.share(), 10);
  EXPECT_NE(find<RunStep>(leader.tell(EngineIdle{})), nullptr);
}

TEST(WorkerShares, AFollowerOffersWhatItHasAndKeepsWhatAllHave) {
  ShareBench follower(false);
  follower.serve(load(kSmall, 20));
  const auto offered = follower.tell(ShareAsked{.model = kShard, .pages = 30});
  ASSERT_NE(find<SizeShare>(offered), nullptr);
  EXPECT_EQ(find<SizeShare>(offered)->pages, 11);
  EXPECT_EQ(follower.share(), 11);
  follower.tell(ShareSet{.model = kShard, .pages = 6});
  EXPECT_EQ(follower.share(), 6);
  EXPECT_EQ(follower.core.report().usage.free, 5);
  EXPECT_EQ(follower.core.report().models.at(0).kv_pages, 6) << "as the manager hears of it";
}

TEST(WorkerShares, WhatIsOfferedIsNotReported) {
  ShareBench follower(false);
  const auto offered = follower.tell(ShareAsked{.model = kShard, .pages = 30});
  EXPECT_EQ(find<DeviceReport>(offered), nullptr);
  const auto set = follower.tell(ShareSet{.model = kShard, .pages = 6});
  ASSERT_NE(find<DeviceReport>(set), nullptr);
  EXPECT_EQ(find<DeviceReport>(set)->usage.free, 25);
}

TEST(WorkerShares, AFollowerOfAnotherLeaderBeginsAnew) {
  ShareBench follower(false);
  follower.tell(ShareAsked{.model = kShard, .pages = 10});
  follower.tell(ShareSet{.model = kShard, .pages = 10});
  follower.tell(GroupJoined{.model = kShard});
  EXPECT_EQ(follower.share(), 0);
}

TEST(WorkerShares, AFollowerThatIsOnItsWayOutOffersNothing) {
  ShareBench follower(false);
  follower.tell(ShareAsked{.model = kShard, .pages = 10});
  follower.tell(ShareSet{.model = kShard, .pages = 10});
  follower.tell(WorkerMessage{
      EvictModel{.model = kShard, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
  EXPECT_EQ(follower.share(), 0);
  const auto offered = follower.tell(ShareAsked{.model = kShard, .pages = 10});
  ASSERT_NE(find<SizeShare>(offered), nullptr);
  EXPECT_EQ(find<SizeShare>(offered)->pages, 0);
}

TEST(WorkerShares, CachedPrefixesGiveWay) {
  ShareBench follower(false);
  follower.serve(load(kSmall, 20));
  follower.tell(KvCounted{.cached_pages = 0});
  EXPECT_EQ(find<TrimCached>(follower.tell(ShareAsked{.model = kShard, .pages = 30})), nullptr);
}

TEST(WorkerShares, BothModelsRunByTheirOwnMemory) {
  ShareBench leader(true);
  leader.serve(load(kSmall, 8));
  leader.tell(WorkerMessage{submit_of(1, kShard, 44, 100)});
  leader.tell(WorkerMessage{submit_of(2, kSmall, 100, 100)});
  leader.tell(EngineIdle{});
  leader.tell(ShareSet{.model = kShard, .pages = 10});
  const auto run = leader.tell(EngineIdle{});
  ASSERT_NE(find<RunStep>(run), nullptr);
  EXPECT_EQ(find<RunStep>(run)->plan.batches.size(), 2U);
}

TEST(WorkerShares, WhoStarvesHasItsGroupGrowThenTheNewestOfItGivesWay) {
  ShareBench leader(true);
  leader.serve(load(kSmall, 8));
  leader.tell(WorkerMessage{submit_of(1, kShard, 8, 100)});
  leader.now += 1ms;
  leader.tell(WorkerMessage{submit_of(2, kShard, 8, 100)});
  leader.tell(WorkerMessage{submit_of(3, kSmall, 8, 100)});
  leader.tell(EngineIdle{});
  leader.tell(ShareSet{.model = kShard, .pages = 10});
  leader.step({}, {.kv = {{.model = kShard, .pages = 2}, {.model = kSmall, .pages = 1}}});
  leader.step({SequenceId(1)},
              {.kv = {{.model = kShard, .pages = 10}, {.model = kSmall, .pages = 1}}});
  const auto asked = leader.tell(EngineIdle{});
  ASSERT_NE(find<SizeShare>(asked), nullptr);
  EXPECT_GT(find<SizeShare>(asked)->pages, 10);
  const auto denied = leader.tell(ShareSet{.model = kShard, .pages = 10});
  ASSERT_NE(find<PreemptSequence>(denied), nullptr);
  EXPECT_EQ(find<PreemptSequence>(denied)->sequence, SequenceId(2)) << "not the small model's";
  EXPECT_EQ(leader.core.report().pages_wanted, 0);
}

TEST(WorkerShares, AGroupThatCannotGoOnSaysSoAndGrowsWhenThereIsMemory) {
  ShareBench leader(true);
  leader.stall();
  EXPECT_GT(leader.core.report().pages_wanted, 0);
  EXPECT_EQ(leader.core.report().wanted_by, kShard);
  EXPECT_TRUE(leader.tell(EngineIdle{}).empty()) << "nor does it ask all the time";
  leader.tell(WorkerMessage{FitShare{.model = kShard}});
  const auto asked = leader.tell(EngineIdle{});
  ASSERT_NE(find<SizeShare>(asked), nullptr);
  leader.tell(ShareSet{.model = kShard, .pages = 6});
  EXPECT_EQ(leader.core.report().pages_wanted, 0);
  EXPECT_NE(find<RunStep>(leader.tell(EngineIdle{})), nullptr);
}

TEST(WorkerShares, WhoComesAfterOneThatFoundNoPageAndWasCalledBackRuns) {
  ShareBench leader(true);
  leader.tell(WorkerMessage{submit_of(1, kShard, 8, 100)});
  leader.tell(EngineIdle{});
  leader.tell(ShareSet{.model = kShard, .pages = 2});
  leader.step({SequenceId(1)}, {.kv = {{.model = kShard, .pages = 2}}});
  leader.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  leader.tell(KvCounted{.kv = {{.model = kShard, .pages = 0}}});
  leader.tell(WorkerMessage{submit_of(2, kShard, 8, 100)});
  EXPECT_NE(find<RunStep>(leader.tell(EngineIdle{})), nullptr);
}

TEST(WorkerShares, WhereNobodyGivesPagesTheRequestFails) {
  ShareBench leader(true);
  leader.stall();
  EXPECT_TRUE(leader.tell(WorkerMessage{NoPages{.model = kSmall}}).empty())
      << "said of another, which lacks none by now";
  const auto told = leader.tell(WorkerMessage{NoPages{.model = kShard}});
  ASSERT_NE(find<RequestFailed>(told), nullptr);
}

TEST(WorkerShares, AnIdleGroupGivesBackAllButTheLeast) {
  ShareBench leader(true);
  leader.tell(WorkerMessage{submit_of(1, kShard, 44, 100)});
  leader.tell(EngineIdle{});
  leader.tell(ShareSet{.model = kShard, .pages = 10});
  leader.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  EXPECT_TRUE(leader.tell(EngineIdle{}).empty());
  leader.tell(WorkerMessage{FitShare{.model = kShard, .idle = true}});
  const auto given = leader.tell(EngineIdle{});
  ASSERT_NE(find<SizeShare>(given), nullptr);
  EXPECT_EQ(find<SizeShare>(given)->pages, 2);
  EXPECT_EQ(leader.share(), 10) << "until the ranks have met";
  leader.tell(ShareSet{.model = kShard, .pages = 2});
  EXPECT_EQ(leader.share(), 2);
}

TEST(WorkerShares, AShareThatWasFarTooLargeForAWhileShrinks) {
  ShareBench leader(true);
  leader.tell(WorkerMessage{submit_of(1, kShard, 100, 100)});
  leader.tell(EngineIdle{});
  leader.tell(ShareSet{.model = kShard, .pages = 19});
  leader.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  leader.tell(WorkerMessage{submit_of(2, kShard, 4, 100)});
  leader.now += 10s;
  EXPECT_EQ(find<SizeShare>(leader.tell(EngineIdle{})), nullptr) << "it was needed lately";
  leader.now += 10s;
  leader.tell(StepDone{.counted = {.kv = {{.model = kShard, .pages = 1}}}, .took = 1ms});
  const auto given = leader.tell(EngineIdle{});
  ASSERT_NE(find<SizeShare>(given), nullptr);
  EXPECT_LT(find<SizeShare>(given)->pages, 10);
}

// ---- A group that steps back ----

TEST(WorkerShares, ALeaderThatStepsBackHasAllRanksLeaveOnceItRunsNothing) {
  ShareBench leader(true);
  leader.tell(WorkerMessage{submit_of(1, kShard, 8, 100)});
  leader.tell(EngineIdle{});
  leader.tell(ShareSet{.model = kShard, .pages = 4});
  leader.tell(WorkerMessage{StepBack{.model = kShard}});
  EXPECT_EQ(find<LeaveRanks>(leader.tell(EngineIdle{})), nullptr);
  leader.tell(StepDone{.took = 1ms});
  leader.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  const auto idle = leader.tell(EngineIdle{});
  ASSERT_NE(find<LeaveRanks>(idle), nullptr);
  EXPECT_EQ(find<SizeShare>(idle), nullptr);
  EXPECT_EQ(leader.share(), 4) << "until they have";
  const auto left = leader.tell(RanksLeft{.model = kShard});
  EXPECT_NE(find<SteppedBack>(left), nullptr);
  EXPECT_EQ(leader.share(), 0);
  EXPECT_EQ(find<LeaveRanks>(leader.tell(EngineIdle{})), nullptr);
  leader.core.check_invariants();
}

TEST(WorkerShares, ARequestThatComesTooLateForAGroupIsGivenBack) {
  ShareBench leader(true);
  leader.tell(WorkerMessage{StepBack{.model = kShard}});
  EXPECT_NE(find<RequestReturned>(leader.tell(WorkerMessage{submit_of(1, kShard, 8, 100)})),
            nullptr);
  leader.tell(EngineIdle{});
  leader.tell(RanksLeft{.model = kShard});
  EXPECT_NE(find<RequestReturned>(leader.tell(WorkerMessage{submit_of(2, kShard, 8, 100)})),
            nullptr);
  leader.tell(GroupJoined{.model = kShard, .leads = true});
  EXPECT_EQ(find<RequestReturned>(leader.tell(WorkerMessage{submit_of(3, kShard, 8, 100)})),
            nullptr);
}

TEST(WorkerShares, AFollowerLeavesWithoutAWordToTheManager) {
  ShareBench follower(false);
  follower.tell(ShareAsked{.model = kShard, .pages = 10});
  follower.tell(ShareSet{.model = kShard, .pages = 10});
  EXPECT_EQ(find<SteppedBack>(follower.tell(RanksLeft{.model = kShard})), nullptr);
  EXPECT_EQ(follower.share(), 0);
}

TEST(WorkerShares, AShardThatIsInNoGroupHasSteppedBack) {
  test::TestWorker worker;
  worker.serve(load(kShard, 8));
  EXPECT_NE(find<SteppedBack>(worker.tell(WorkerMessage{StepBack{.model = kShard}})), nullptr);
}

TEST(WorkerShares, WhatIsLackedIsSaidAgainOnceAGroupIsFormed) {
  test::TestWorker worker;
  worker.serve(load(kShard, 8));
  EXPECT_NE(find<DeviceReport>(worker.tell(GroupJoined{.model = kShard})), nullptr)
      << "until then the manager would take nothing of it";
}

// ---- Several groups ----

TEST(WorkerShares, AStepRunsOneGroupAndEachHasItsTurn) {
  constexpr ModelId kOtherShard{3};
  ShareBench leader(true);
  leader.serve(load(kOtherShard, 8));
  leader.serve(load(kSmall, 2));
  leader.tell(GroupJoined{.model = kOtherShard, .leads = true});
  std::uint64_t number = 0;
  for (const ModelId model : {kShard, kOtherShard, kSmall}) {
    leader.tell(WorkerMessage{submit_of(++number, model, 4, 100)});
  }
  for (const ModelId model : {kShard, kOtherShard}) {
    ASSERT_NE(find<SizeShare>(leader.tell(EngineIdle{})), nullptr);
    leader.tell(ShareSet{.model = model, .pages = 4});
  }
  std::vector<ModelId> groups;
  for (int i = 0; i < 4; ++i) {
    const auto commands = leader.tell(EngineIdle{});
    const auto* run = find<RunStep>(commands);
    ASSERT_NE(run, nullptr);
    ASSERT_EQ(run->plan.batches.size(), 2U) << "a group, and what the device runs alone";
    for (const policy::ModelBatch& batch : run->plan.batches) {
      if (batch.model != kSmall) {
        groups.push_back(batch.model);
      }
    }
    leader.tell(StepDone{.took = 1ms});
  }
  EXPECT_EQ(groups, (std::vector{kShard, kOtherShard, kShard, kOtherShard}));
}

TEST(WorkerShares, AGroupThatCannotGoOnHoldsUpNoOther) {
  constexpr ModelId kOtherShard{3};
  ShareBench leader(true, 4);  // What is left of a prompt is more than a step takes.
  leader.serve(load(kOtherShard, 8));
  leader.tell(GroupJoined{.model = kOtherShard, .leads = true});
  leader.stall(16);
  leader.tell(WorkerMessage{submit_of(2, kOtherShard, 4, 100)});
  ASSERT_NE(find<SizeShare>(leader.tell(EngineIdle{})), nullptr);
  leader.tell(ShareSet{.model = kOtherShard, .pages = 4});
  const auto commands = leader.tell(EngineIdle{});
  const auto* run = find<RunStep>(commands);
  ASSERT_NE(run, nullptr) << "what waits for pages of its share is no work for the engine";
  ASSERT_EQ(run->plan.batches.size(), 1U);
  EXPECT_EQ(run->plan.batches[0].model, kOtherShard);
}

}  // namespace
}  // namespace heddle::core
