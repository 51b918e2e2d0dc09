#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "core/test_find.h"
#include "core/worker_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr ModelId kC{3};

/// A worker of 40 pages whose shell does as it is told.
class Bench {
 public:
  explicit Bench(std::int64_t graph_pages = 0, std::int64_t prefix_cache = 0)
      : core_(WorkerOptions{.epoch = WorkerEpoch(1),
                            .pages = 40,
                            .device_pages = 40,
                            .step = {.budget = 10ms, .max_batch_tokens = 64},
                            .prefix_cache = prefix_cache,
                            .graph_pages = graph_pages}) {}

  /// What it wants in the end: KeepGraphs is answered, by what `stuck` says.
  std::vector<WorkerCommand> tell(const WorkerEvent& event) {
    std::vector<WorkerCommand> commands;
    core_.step(now_, event, commands);
    core_.check_invariants();
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const auto* keep = std::get_if<KeepGraphs>(&commands[i]);
      if (keep != nullptr) {
        graphs = stuck ? std::max(graphs, keep->pages) : keep->pages;
        core_.step(now_, GraphsKept{.pages = graphs}, commands);
        core_.check_invariants();
      }
    }
    return commands;
  }

  std::vector<WorkerCommand> load(ModelId model,
                                  std::int64_t image,
                                  std::int64_t workspace,
                                  std::int64_t wanted = 0) {
    LoadModel load{.model = model,
                   .basis = {.epoch = WorkerEpoch(1), .version = core_.report().version},
                   .source = ImageSource::kShared,
                   .image_bytes = 1000,
                   .ready_bytes = 1000,
                   .footprint = {.image_pages = image,
                                 .overhead_pages = workspace,
                                 .min_kv_pages = 1,
                                 .graph_pages = wanted,
                                 .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}}};
    load.pages.resize(static_cast<std::size_t>(image));
    std::vector<WorkerCommand> commands = tell(WorkerMessage{load});
    if (find<OpenModel>(commands) != nullptr) {
      tell(ModelOpened{.model = model});
      tell(CopyProgress{.model = model, .bytes = 1000});
    }
    return commands;
  }
  std::vector<WorkerCommand> evict(ModelId model) {
    return tell(WorkerMessage{EvictModel{.model = model, .mode = EvictMode::kNow}});
  }
  void remove(ModelId model) {
    evict(model);
    tell(ModelClosed{.model = model});
  }

  /// A sequence of `model` that has taken all pages but `left`, and finds too few in its second
  /// step.
  std::vector<WorkerCommand> starve(ModelId model, std::int64_t left = 0) {
    Submit submit{.request = RequestId(1), .model = model, .due = 10s};
    submit.prompt.resize(left > 0 ? 200 : 110, 7);
    submit.choices.resize(1);
    submit.choices[0].params.max_tokens = 20;
    tell(WorkerMessage{submit});
    HEDDLE_CHECK(find<RunStep>(tell(EngineIdle{})) != nullptr);
    const KvCounted all{.kv = {{.model = model, .pages = free() - left}}};
    tell(StepDone{.slices = {{.sequence = SequenceId(1), .computed = 64}}, .counted = all});
    return starve_again(all);
  }
  std::vector<WorkerCommand> starve_again(const KvCounted& counted) {
    HEDDLE_CHECK(find<RunStep>(tell(EngineIdle{})) != nullptr);
    return tell(StepDone{.starved = {SequenceId(1)}, .counted = counted});
  }

  [[nodiscard]] std::int64_t overhead() const {
    return core_.report().usage.of(ledger::LeaseKind::kOverhead).held;
  }
  [[nodiscard]] std::int64_t free() const { return core_.report().usage.free; }
  [[nodiscard]] DeviceReport report() const { return core_.report(); }

  std::int64_t graphs = 0;
  bool stuck = false;

 private:
  Instant now_{1s};
  WorkerCore core_;
};

TEST(WorkerOverhead, ModelsOfADeviceAreChargedTheLargestWorkspaceOnce) {
  Bench bench;
  EXPECT_EQ(find<FitWorkspace>(bench.load(kA, 5, 3))->pages, 3);
  EXPECT_EQ(bench.overhead(), 3);
  EXPECT_EQ(find<FitWorkspace>(bench.load(kB, 5, 3)), nullptr) << "it is there";
  EXPECT_EQ(bench.free(), 40 - 5 - 5 - 3);
  EXPECT_EQ(find<FitWorkspace>(bench.load(kC, 5, 7))->pages, 7) << "not four more, but as large";
  EXPECT_EQ(bench.overhead(), 7);
  EXPECT_EQ(bench.free(), 40 - 15 - 7);
}

TEST(WorkerOverhead, TheWorkspaceIsGivenBackWhenTheLargestHasGone) {
  Bench bench;
  bench.load(kA, 5, 3);
  bench.load(kB, 5, 7);
  EXPECT_EQ(find<FitWorkspace>(bench.evict(kB)), nullptr) << "it may be in use until that is done";
  EXPECT_EQ(find<FitWorkspace>(bench.tell(ModelClosed{.model = kB}))->pages, 3);
  EXPECT_EQ(bench.free(), 40 - 5 - 3);
  bench.evict(kA);
  EXPECT_EQ(find<FitWorkspace>(bench.tell(ModelClosed{.model = kA}))->pages, 0);
  EXPECT_EQ(bench.free(), 40);
}

TEST(WorkerOverhead, WhoTakesAnothersPlaceFindsTheWorkspaceThere) {
  Bench bench;
  bench.load(kA, 30, 6);
  bench.evict(kA);
  EXPECT_EQ(find<OpenModel>(bench.load(kB, 30, 6)), nullptr) << "it waits for A to go";
  const auto commands = bench.tell(ModelClosed{.model = kA});
  EXPECT_NE(find<OpenModel>(commands), nullptr);
  EXPECT_EQ(find<FitWorkspace>(commands), nullptr);
  EXPECT_EQ(bench.overhead(), 6);
}

TEST(WorkerOverhead, ASmallerOneMayNeedWhatTheWorkspaceGivesBack) {
  Bench bench;
  bench.load(kA, 30, 9);
  bench.evict(kA);
  bench.load(kB, 38, 2);
  const auto commands = bench.tell(ModelClosed{.model = kA});
  ASSERT_TRUE(std::holds_alternative<FitWorkspace>(commands.at(1))) << "before pages are taken";
  EXPECT_EQ(find<FitWorkspace>(commands)->pages, 2);
  EXPECT_NE(find<OpenModel>(commands), nullptr);
  EXPECT_EQ(bench.free(), 0);
}

TEST(WorkerOverhead, ALoadIsRefusedIfItsWorkspaceCannotGrow) {
  Bench bench;
  bench.load(kA, 20, 3);
  const auto refused = bench.load(kB, 15, 6);
  ASSERT_NE(find<LoadRefused>(refused), nullptr);
  EXPECT_EQ(find<LoadRefused>(refused)->reason.message,
            "load model 2: needs 18 pages, free are 17 of 40");
  EXPECT_EQ(find<FitWorkspace>(refused), nullptr);
  EXPECT_EQ(bench.overhead(), 3);
  EXPECT_NE(find<OpenModel>(bench.load(kB, 15, 5)), nullptr);
  EXPECT_EQ(bench.free(), 0);
}

TEST(WorkerOverhead, RecordingsHaveThePagesThatAModelOfTheDeviceWantsAtMost) {
  Bench bench(4);
  EXPECT_EQ(find<KeepGraphs>(bench.load(kA, 5, 1)), nullptr) << "it is not recorded";
  EXPECT_EQ(find<KeepGraphs>(bench.load(kB, 5, 1, 3))->pages, 3);
  EXPECT_EQ(bench.overhead(), 1 + 3);
  EXPECT_EQ(find<KeepGraphs>(bench.load(kC, 5, 1, 9))->pages, 4) << "no more than the device's";
  EXPECT_EQ(bench.free(), 40 - 15 - 1 - 4);
  bench.remove(kC);
  EXPECT_EQ(bench.graphs, 3);
  bench.remove(kB);
  EXPECT_EQ(bench.graphs, 0);
  EXPECT_EQ(bench.overhead(), 1);
}

TEST(WorkerOverhead, RecordingsComeWhereTwiceTheirPagesAreFreeOrCached) {
  Bench tight(4);
  EXPECT_EQ(find<KeepGraphs>(tight.load(kA, 32, 1, 4)), nullptr);
  Bench enough(4);
  EXPECT_NE(find<KeepGraphs>(enough.load(kA, 31, 1, 4)), nullptr);

  Bench cached(4, 100);
  cached.load(kB, 20, 1);
  cached.tell(KvCounted{.kv = {{.model = kB}}, .cached_pages = 18});
  const auto keeping = cached.load(kA, 2, 1, 4);
  EXPECT_EQ(cached.graphs, 4);
  EXPECT_EQ(cached.free(), 0);
  EXPECT_EQ(cached.report().usage.of(ledger::LeaseKind::kKvCached).held, 13);
  EXPECT_NE(find<TrimCached>(keeping), nullptr);
}

TEST(WorkerOverhead, ALoadTakesThePagesOfRecordingsLast) {
  Bench bench(4, 100);
  bench.load(kA, 20, 1, 4);
  bench.tell(KvCounted{.kv = {{.model = kA}}, .cached_pages = 10});
  bench.load(kB, 15, 1);
  EXPECT_EQ(bench.graphs, 4) << "cached prefixes were enough";
  bench.remove(kB);
  EXPECT_NE(find<OpenModel>(bench.load(kC, 17, 1)), nullptr);
  EXPECT_EQ(bench.graphs, 0);
  EXPECT_EQ(bench.free(), 40 - 20 - 17 - 1);
  bench.remove(kC);
  EXPECT_EQ(bench.graphs, 4) << "there is room again";
}

TEST(WorkerOverhead, ALoanTakesThePagesOfRecordingsLast) {
  Bench bench(4);
  bench.load(kA, 20, 1, 4);
  const LendPages lend{.model = kB, .basis = {.epoch = WorkerEpoch(1)}, .count = 17};
  EXPECT_EQ(find<SurrenderPages>(bench.tell(WorkerMessage{lend}))->count, 17);
  EXPECT_EQ(bench.graphs, 0);
}

TEST(WorkerOverhead, ALoadThatDoesNotFitEvenSoLeavesThemAlone) {
  Bench bench(4);
  bench.load(kA, 20, 1, 4);
  EXPECT_NE(find<LoadRefused>(bench.load(kB, 30, 1)), nullptr);
  EXPECT_EQ(bench.graphs, 4);
}

TEST(WorkerOverhead, TheLastSequenceTakesThemWhereNobodyElseHasPages) {
  Bench bench(4);
  bench.load(kA, 20, 1, 4);
  EXPECT_NE(find<KeepGraphs>(bench.starve(kA)), nullptr);
  EXPECT_EQ(bench.graphs, 0);
  EXPECT_EQ(bench.report().pages_wanted, 0);
  EXPECT_NE(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
}

TEST(WorkerOverhead, AnotherModelGoesBeforeThem) {
  Bench bench(4);
  bench.load(kA, 15, 1, 4);
  bench.load(kB, 5, 1);
  bench.starve(kA);
  EXPECT_EQ(bench.graphs, 4);
  EXPECT_GT(bench.report().pages_wanted, 0);
  bench.remove(kB);
  EXPECT_EQ(bench.graphs, 4);
  EXPECT_EQ(bench.report().pages_wanted, 0);
  EXPECT_NE(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
}

TEST(WorkerOverhead, ALoanComesBackBeforeTheyGo) {
  Bench bench(4);
  bench.load(kA, 15, 1, 4);
  bench.tell(WorkerMessage{LendPages{.model = kB, .basis = {.epoch = WorkerEpoch(1)}, .count = 5}});
  bench.starve(kA);
  EXPECT_EQ(bench.graphs, 4);
  EXPECT_GT(bench.report().pages_wanted, 0);
  bench.tell(WorkerMessage{GivePages{.pages = std::vector<PageId>(5)}});
  EXPECT_EQ(bench.graphs, 4);
  EXPECT_NE(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
}

TEST(WorkerOverhead, TheyGoWhenNobodyGivesPagesAndThenTheRequestDoes) {
  Bench bench(4);
  bench.load(kA, 10, 1, 4);
  bench.load(kB, 10, 1);
  bench.starve(kA, 1);
  EXPECT_EQ(find<RequestFailed>(bench.tell(WorkerMessage{NoPages{.model = kA}})), nullptr);
  EXPECT_EQ(bench.graphs, 0);
  EXPECT_EQ(bench.report().pages_wanted, 0);
  bench.tell(WorkerMessage{NoPages{.model = kA}});  // Late: it has what it wanted.
  bench.starve_again({.kv = {{.model = kA, .pages = 18}}});
  EXPECT_GT(bench.report().pages_wanted, 0);
  EXPECT_NE(find<RequestFailed>(bench.tell(WorkerMessage{NoPages{.model = kA}})), nullptr);
}

// A manager that is new may not know yet that a model has requests, and order it off.
TEST(WorkerOverhead, AModelThatIsToGoAndStarvesGivesItsRequestsBack) {
  Bench bench(4);
  bench.load(kA, 15, 1, 4);
  bench.load(kB, 5, 1);
  bench.starve(kA);
  EXPECT_GT(bench.report().pages_wanted, 0);
  const auto wanted =
      bench.tell(WorkerMessage{EvictModel{.model = kA, .basis = {.epoch = WorkerEpoch(1)}}});
  EXPECT_NE(find<RequestReturned>(wanted), nullptr);
  EXPECT_NE(find<CloseModel>(wanted), nullptr);
  EXPECT_EQ(bench.report().pages_wanted, 0);
}

// Who starved may need more pages than CUDA graphs had, and others that are free, at once.
TEST(WorkerOverhead, WhatStarvedHasThePagesUntilSomethingEnds) {
  Bench bench(4);
  bench.load(kA, 10, 1, 4);
  bench.starve(kA, 10);
  EXPECT_EQ(bench.graphs, 0);
  EXPECT_GE(bench.free(), 2 * 4);
  bench.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  EXPECT_EQ(bench.graphs, 4);
}

TEST(WorkerOverhead, IfTheirMemoryCannotBeHadAgainTheyStayChargedAndOthersHaveToGo) {
  Bench bench(4);
  bench.load(kA, 15, 1, 4);
  bench.load(kB, 5, 1);
  bench.stuck = true;
  bench.starve(kA);
  bench.tell(WorkerMessage{NoPages{.model = kA}});
  EXPECT_EQ(bench.overhead(), 1 + 4);
  const KvCounted all{.kv = {{.model = kA, .pages = 15}}};
  EXPECT_EQ(find<KeepGraphs>(bench.starve_again(all)), nullptr) << "once is enough";
  EXPECT_GT(bench.report().pages_wanted, 0);
}

}  // namespace
}  // namespace heddle::core
