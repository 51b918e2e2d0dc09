#include "core/worker_core.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/test_find.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kA{1};
constexpr ModelId kB{2};

/// A WorkerCore with 20 pages that is told events and remembers what it wants.
class Bench {
 public:
  std::vector<WorkerCommand> tell(const WorkerEvent& event) {
    std::vector<WorkerCommand> commands;
    core.step(now, event, commands);
    core.check_invariants();
    return commands;
  }

  static LoadModel load(ModelId model, std::int64_t pages, std::uint64_t version = 0) {
    LoadModel load{.model = model,
                   .basis = {.epoch = WorkerEpoch(1), .version = version},
                   .image_bytes = 1000,
                   .ready_bytes = 1000,
                   .footprint = {.image_pages = pages,
                                 .overhead_pages = 1,
                                 .min_kv_pages = 1,
                                 .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}}};
    for (std::int64_t i = 0; i < pages; ++i) {
      load.pages.emplace_back(100 + static_cast<std::uint64_t>(i));
    }
    return load;
  }
  static EvictModel evict(ModelId model, EvictMode mode, std::int64_t pages) {
    EvictModel evict{.model = model, .basis = {.epoch = WorkerEpoch(1)}, .mode = mode};
    for (std::int64_t i = 0; i < pages; ++i) {
      evict.pages.emplace_back(200 + static_cast<std::uint64_t>(i));
    }
    return evict;
  }
  static Submit submit(std::uint64_t request,
                       ModelId model,
                       std::size_t prompt,
                       std::int64_t max_tokens,
                       Duration age = 0s) {
    Submit submit{.request = RequestId(request), .model = model, .age = age, .due = 10s - age};
    submit.prompt.resize(prompt, 7);
    submit.choices.resize(1);
    submit.choices[0].params.max_tokens = max_tokens;
    return submit;
  }
  void serve(ModelId model, std::int64_t pages) {
    tell(WorkerMessage{load(model, pages)});
    tell(ModelOpened{.model = model});
  }

  Instant now{1s};
  WorkerCore core{WorkerOptions{
      .epoch = WorkerEpoch(1), .pages = 20, .step = {.budget = 10ms, .max_batch_tokens = 64}}};
};

/// What the engine would say of a plan that went well; every slice that ends samples a token.
StepDone done(const policy::StepPlan& plan, std::int64_t cached, std::int64_t kv_pages) {
  StepDone done{.took = 1ms};
  for (const auto& batch : plan.batches) {
    for (const auto& slice : batch.slices) {
      done.slices.push_back(
          {.sequence = slice.sequence, .computed = cached + slice.tokens, .token = 5});
    }
    done.counted.kv.push_back({.model = batch.model, .pages = kv_pages});
  }
  return done;
}

TEST(WorkerCore, ALoadReturnsAsManyPagesAsItIsGiven) {
  Bench bench;
  const auto commands = bench.tell(WorkerMessage{Bench::load(kA, 8)});
  ASSERT_NE(find<SurrenderPages>(commands), nullptr);
  EXPECT_EQ(find<SurrenderPages>(commands)->count, 8);
  ASSERT_NE(find<OpenModel>(commands), nullptr);
  EXPECT_EQ(find<OpenModel>(commands)->pages.size(), 8U);
  EXPECT_EQ(find<ModelServing>(commands), nullptr);
  EXPECT_NE(find<ModelServing>(bench.tell(ModelOpened{.model = kA})), nullptr);
  EXPECT_EQ(bench.core.report().usage.free, 11);
  EXPECT_EQ(bench.core.report().models.at(0).residency, Residency::kWarm);
}

TEST(WorkerCore, OneRoundTripSwitchesAModel) {
  Bench bench;
  bench.serve(kA, 15);
  const auto evicting = bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kWhenIdle, 15)});
  EXPECT_EQ(find<AdoptPages>(evicting)->pages.size(), 15U);
  EXPECT_EQ(find<CloseModel>(evicting)->image, ImagePages::kLeave);
  // The pages that came with the eviction make room though A is still mapped.
  const auto loading = bench.tell(WorkerMessage{Bench::load(kB, 15)});
  EXPECT_NE(find<OpenModel>(loading), nullptr);
  EXPECT_TRUE(find<ModelEvicted>(bench.tell(ModelClosed{.model = kA}))->exchanged);
}

TEST(WorkerCore, ALoadWaitsForPagesThatAreOnTheirWay) {
  Bench bench;
  bench.serve(kA, 15);
  bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kWhenIdle, 0)});
  EXPECT_EQ(find<OpenModel>(bench.tell(WorkerMessage{Bench::load(kB, 15)})), nullptr);
  const auto commands = bench.tell(ModelClosed{.model = kA});
  EXPECT_FALSE(find<ModelEvicted>(commands)->exchanged);
  EXPECT_NE(find<OpenModel>(commands), nullptr);
}

TEST(WorkerCore, RefusesWithoutRoomAndThenWhatWasBuiltOnIt) {
  Bench bench;
  const auto refused = bench.tell(WorkerMessage{Bench::load(kA, 20)});
  ASSERT_NE(find<LoadRefused>(refused), nullptr);
  EXPECT_EQ(find<LoadRefused>(refused)->reason.code, Code::kResourceExhausted);
  EXPECT_EQ(find<LoadRefused>(refused)->reason.message,
            "load model 1: needs 21 pages, free are 20 of 20");
  const auto stale = bench.tell(WorkerMessage{Bench::load(kB, 5)});
  EXPECT_EQ(find<LoadRefused>(stale)->reason.code, Code::kFailedPrecondition);
  EXPECT_EQ(find<LoadRefused>(stale)->version, 2U);
  EXPECT_NE(find<OpenModel>(bench.tell(WorkerMessage{Bench::load(kB, 5, 2)})), nullptr);
}

TEST(WorkerCore, RefusesTheOrdersForAnotherLife) {
  Bench bench;
  LoadModel old = Bench::load(kA, 5);
  old.basis.epoch = WorkerEpoch(9);
  EXPECT_NE(find<LoadRefused>(bench.tell(WorkerMessage{old})), nullptr);
}

TEST(WorkerCore, ADrainingModelEndsItsRequestsFirst) {
  Bench bench;
  bench.serve(kA, 8);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 3, 1)});
  EXPECT_EQ(find<CloseModel>(bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kWhenIdle, 0)})),
            nullptr);
  EXPECT_NE(find<RequestReturned>(bench.tell(WorkerMessage{Bench::submit(2, kA, 3, 1)})), nullptr);
  const auto run = bench.tell(EngineIdle{});
  StepDone last = done(find<RunStep>(run)->plan, 0, 1);
  last.slices[0].finish = spec::FinishReason::kLength;
  const auto commands = bench.tell(last);
  EXPECT_NE(find<TokensProduced>(commands), nullptr);
  EXPECT_NE(find<CloseModel>(commands), nullptr);
}

TEST(WorkerCore, EvictingNowGivesRequestsBack) {
  Bench bench;
  bench.serve(kA, 8);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 3, 9)});
  const auto commands = bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kNow, 0)});
  EXPECT_EQ(find<RequestReturned>(commands)->request, RequestId(1));
  EXPECT_NE(find<RemoveSequence>(commands), nullptr);
  EXPECT_NE(find<CloseModel>(commands), nullptr);
}

TEST(WorkerCore, WeightsAreActiveWhileTheyServe) {
  Bench bench;
  bench.serve(kA, 8);
  const auto active = [&] {
    return bench.core.report().usage.of(ledger::LeaseKind::kWeightsActive).held;
  };
  EXPECT_EQ(active(), 0);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 3, 9)});
  EXPECT_EQ(active(), 8);
  bench.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  EXPECT_EQ(active(), 0);
}

TEST(WorkerCore, RefusesAtOnceWhatCouldNeverFitAlone) {
  Bench bench;
  bench.serve(kA, 8);  // 11 pages, 88 tokens, are left.
  const auto commands = bench.tell(WorkerMessage{Bench::submit(1, kA, 40, 49)});
  ASSERT_NE(find<RequestFailed>(commands), nullptr);
  EXPECT_NE(find<RequestFailed>(commands)->error.message.find("need 12 pages of KV"),
            std::string::npos);
  EXPECT_EQ(find<RequestFailed>(bench.tell(WorkerMessage{Bench::submit(2, kA, 40, 48)})), nullptr);
}

TEST(WorkerCore, WhenPagesRunOutTheNewestGivesWay) {
  Bench bench;
  bench.serve(kA, 8);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 3, 80, 5s)});
  bench.tell(WorkerMessage{Bench::submit(2, kA, 3, 80, 1s)});
  const auto run = bench.tell(EngineIdle{});
  bench.tell(done(find<RunStep>(run)->plan, 0, 11));
  const auto again = bench.tell(EngineIdle{});
  StepDone starved = done(find<RunStep>(again)->plan, 3, 11);
  std::erase_if(starved.slices, [](const auto& s) { return s.sequence == SequenceId(1); });
  starved.starved = {SequenceId(1)};
  EXPECT_EQ(find<PreemptSequence>(bench.tell(starved))->sequence, SequenceId(2));
  const auto alone = bench.tell(EngineIdle{});
  ASSERT_EQ(find<RunStep>(alone)->plan.batches.at(0).slices.size(), 1U);
  EXPECT_EQ(find<RunStep>(alone)->plan.batches[0].slices[0].sequence, SequenceId(1));
}

TEST(WorkerCore, TheNextTokenTellsSinceWhenItsRequestWasPreempted) {
  Bench bench;
  bench.serve(kA, 8);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 3, 80, 5s)});
  bench.tell(WorkerMessage{Bench::submit(2, kA, 3, 80, 1s)});
  const auto run = bench.tell(EngineIdle{});
  const auto first = bench.tell(done(find<RunStep>(run)->plan, 0, 11));
  ASSERT_NE(find<TokensProduced>(first), nullptr);
  EXPECT_EQ(find<TokensProduced>(first)->tokens.at(1).preempted, 0s);
  const auto again = bench.tell(EngineIdle{});
  StepDone starved = done(find<RunStep>(again)->plan, 3, 11);
  std::erase_if(starved.slices, [](const auto& s) { return s.sequence == SequenceId(1); });
  starved.starved = {SequenceId(1)};
  bench.tell(starved);
  bench.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  bench.now += 3s;
  const auto resumed = bench.tell(EngineIdle{});
  ASSERT_NE(find<RunStep>(resumed), nullptr);
  const auto second = bench.tell(done(find<RunStep>(resumed)->plan, 0, 5));
  ASSERT_NE(find<TokensProduced>(second), nullptr);
  EXPECT_EQ(find<TokensProduced>(second)->tokens.at(0).preempted, 3s);
}

TEST(WorkerCore, AsksForPagesThatOnlyAnotherModelHas) {
  Bench bench;
  bench.serve(kA, 5);
  bench.serve(kB, 5);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 30, 50)});
  const auto run = bench.tell(EngineIdle{});
  StepDone starved{.starved = {SequenceId(1)}, .took = 1ms};
  const auto commands = bench.tell(starved);
  ASSERT_NE(find<DeviceReport>(commands), nullptr);
  EXPECT_GT(find<DeviceReport>(commands)->pages_wanted, 0);
  EXPECT_EQ(find<DeviceReport>(commands)->wanted_by, kA);
  EXPECT_TRUE(bench.tell(EngineIdle{}).empty());  // No step in vain.
  bench.tell(WorkerMessage{Bench::evict(kB, EvictMode::kNow, 0)});
  bench.tell(ModelClosed{.model = kB});
  EXPECT_EQ(bench.core.report().pages_wanted, 0);
  EXPECT_NE(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
}

TEST(WorkerCore, AnIncompleteModelRunsOnlyWhereNobodyElseWouldWait) {
  Bench bench;
  bench.serve(kA, 5);
  LoadModel partly = Bench::load(kB, 5);
  partly.ready_bytes = 10;
  bench.tell(WorkerMessage{partly});
  bench.tell(ModelOpened{.model = kB});
  bench.tell(WorkerMessage{Bench::submit(1, kB, 4, 4)});
  bench.tell(WorkerMessage{Bench::submit(2, kA, 4, 4)});
  const auto run = bench.tell(EngineIdle{});
  ASSERT_EQ(find<RunStep>(run)->plan.batches.size(), 1U);
  EXPECT_EQ(find<RunStep>(run)->plan.batches[0].model, kA);
  bench.tell(done(find<RunStep>(run)->plan, 0, 1));
  EXPECT_NE(
      find<SetImageReady>(bench.tell(WorkerMessage{ImageProgress{.model = kB, .bytes = 1000}})),
      nullptr);
  const auto both = bench.tell(EngineIdle{});
  EXPECT_EQ(find<RunStep>(both)->plan.batches.size(), 2U);
}

TEST(WorkerCore, AModelThatCannotBeOpenedIsReportedAndCleanedUp) {
  Bench bench;
  bench.tell(WorkerMessage{Bench::load(kA, 5)});
  const auto failed = bench.tell(OpenFailed{.model = kA, .error = {Code::kUnavailable, "mmap"}});
  EXPECT_EQ(find<LoadFailed>(failed)->version, 1U);
  bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kNow, 5)});
  EXPECT_TRUE(find<ModelEvicted>(bench.tell(ModelClosed{.model = kA}))->exchanged);
  EXPECT_EQ(bench.core.report().usage.free, 20);
}

/// A bench with model A (6 of 20 pages) that may cache prefixes in `percent` of the rest.
Bench caching(std::int64_t percent, bool states = false) {
  Bench bench;
  bench.core = WorkerCore({.epoch = WorkerEpoch(1),
                           .pages = 20,
                           .step = {.budget = 10ms, .max_batch_tokens = 64},
                           .prefix_cache = percent});
  LoadModel load = Bench::load(kA, 5);
  if (states) {
    load.footprint.kv.push_back({.tokens_per_block = 1000, .blocks_per_page = 1, .window = 1000});
  }
  bench.tell(WorkerMessage{load});
  bench.tell(ModelOpened{.model = kA});
  return bench;
}

TEST(WorkerCore, SeeksAPrefixBeforeTheFirstStepAndPlansOnlyTheRest) {
  Bench bench = caching(100);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 40, 10)});
  const auto asking = bench.tell(EngineIdle{});
  EXPECT_EQ(find<RunStep>(asking), nullptr);
  ASSERT_NE(find<TakePrefixes>(asking), nullptr);
  const SequenceId id = find<TakePrefixes>(asking)->sequences.at(0);
  EXPECT_GT(find<TakePrefixes>(asking)->computing.at(0), Duration{});
  bench.tell(PrefixesTaken{.sequences = {{.sequence = id, .computed = 32}}});
  bench.tell(KvCounted{.kv = {{.model = kA, .pages = 4}}});
  EXPECT_EQ(bench.core.report().models.at(0).kv_pages, 4);
  const auto running = bench.tell(EngineIdle{});
  ASSERT_NE(find<RunStep>(running), nullptr);
  EXPECT_EQ(find<RunStep>(running)->plan.batches.at(0).slices.at(0).tokens, 8);
}

TEST(WorkerCore, ForgetsWhatTheHostKeepsOfAModelWhoseWeightsWereWrong) {
  Bench bench = caching(100);
  for (const ModelId model : {kA, ModelId(9)}) {  // Here, and not.
    const auto told = bench.tell(WorkerMessage{ForgetKv{.model = model}});
    ASSERT_NE(find<DropKept>(told), nullptr);
    EXPECT_EQ(find<DropKept>(told)->model, model);
  }
}

// Two of a batch's prompts, of which only one has room in the next step: the other seeks its prefix
// when its turn comes, and may find what the first has computed.
TEST(WorkerCore, SeeksAPrefixOnlyForThoseWhoseTurnItIs) {
  Bench bench = caching(100);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 64, 2, 1s)});
  bench.tell(WorkerMessage{Bench::submit(2, kA, 30, 2)});
  const auto asking = bench.tell(EngineIdle{});
  ASSERT_EQ(find<TakePrefixes>(asking)->sequences.size(), 1U);
  bench.tell(PrefixesTaken{.sequences = {{find<TakePrefixes>(asking)->sequences[0], 0}}});
  const auto running = bench.tell(EngineIdle{});
  ASSERT_NE(find<RunStep>(running), nullptr);
  bench.tell(done(find<RunStep>(running)->plan, 0, 8));
  EXPECT_NE(find<TakePrefixes>(bench.tell(EngineIdle{})), nullptr);
}

// Several answers to one prompt: one computes it, the others find it. Where layers keep a state
// too.
TEST(WorkerCore, OneOfSeveralChoicesComputesThePrompt) {
  for (const auto& [prompt, states] :
       {std::pair{30U, false}, std::pair{30U, true}, std::pair{4U, false}, std::pair{4U, true}}) {
    Bench bench = caching(100, states);
    Submit submit = Bench::submit(1, kA, prompt, 10);
    submit.choices.push_back(submit.choices[0]);
    submit.choices[1].params.choice = 1;
    bench.tell(WorkerMessage{submit});
    const auto asking = bench.tell(EngineIdle{});
    const auto& asked = find<TakePrefixes>(asking)->sequences;
    if (prompt == 4) {
      EXPECT_EQ(asked.size(), 2U) << "less than a block, so there is nothing to share";
      continue;
    }
    ASSERT_EQ(asked.size(), 1U);
    bench.tell(PrefixesTaken{.sequences = {{asked[0], 0}}});
    const auto running = bench.tell(EngineIdle{});
    EXPECT_EQ(find<RunStep>(running)->plan.batches.at(0).slices.size(), 1U);
    bench.tell(done(find<RunStep>(running)->plan, 0, 4));
    const auto next = bench.tell(EngineIdle{});
    ASSERT_NE(find<TakePrefixes>(next), nullptr);
    EXPECT_NE(find<TakePrefixes>(next)->sequences.at(0), asked[0]);
  }
}

TEST(WorkerCore, CachedPagesMakeWayForALoad) {
  Bench bench = caching(100);
  bench.tell(KvCounted{.kv = {{.model = kA}}, .cached_pages = 12});
  EXPECT_EQ(bench.core.report().usage.free, 2);
  EXPECT_EQ(bench.core.report().usage.of(ledger::LeaseKind::kKvCached).held, 12);
  const auto loading = bench.tell(WorkerMessage{Bench::load(kB, 8)});
  EXPECT_EQ(find<LoadRefused>(loading), nullptr);
  ASSERT_NE(find<TrimCached>(loading), nullptr);
  EXPECT_EQ(find<TrimCached>(loading)->keep, 6) << "it finds a workspace";
  EXPECT_EQ(find<TrimCached>(loading)->reason, ledger::DropReason::kLoad);
  EXPECT_TRUE(std::holds_alternative<TrimCached>(loading.at(0))) << "before pages are given away";
  EXPECT_NE(find<OpenModel>(loading), nullptr);
  EXPECT_EQ(bench.core.report().usage.free, 0);
}

TEST(WorkerCore, AnEndedSequencesPagesCountAsCachedAtOnce) {
  Bench bench = caching(100);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 40, 10)});
  const auto asking = bench.tell(EngineIdle{});
  bench.tell(PrefixesTaken{.sequences = {{find<TakePrefixes>(asking)->sequences[0], 0}}});
  const auto running = bench.tell(EngineIdle{});
  bench.tell(done(find<RunStep>(running)->plan, 0, 5));
  bench.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  const auto& usage = bench.core.report().usage;
  EXPECT_EQ(usage.of(ledger::LeaseKind::kKvOwn).held, 0);
  EXPECT_EQ(bench.core.report().usage.of(ledger::LeaseKind::kKvCached).held, 5);
  bench.tell(KvCounted{.kv = {{.model = kA}}, .cached_pages = 4});
  EXPECT_EQ(bench.core.report().usage.of(ledger::LeaseKind::kKvCached).held, 4);
}

TEST(WorkerCore, KeepsTheCacheWithinItsBound) {
  Bench bench = caching(50);
  EXPECT_EQ(find<TrimCached>(bench.tell(KvCounted{.kv = {{.model = kA}}, .cached_pages = 7})),
            nullptr);
  const auto trimming = bench.tell(KvCounted{.kv = {{.model = kA}}, .cached_pages = 9});
  ASSERT_NE(find<TrimCached>(trimming), nullptr);
  EXPECT_EQ(find<TrimCached>(trimming)->keep, 7);
  EXPECT_EQ(find<TrimCached>(trimming)->reason, ledger::DropReason::kBound);
}

// Its blocks lie scattered, beside others that have gone: alone it would have had enough pages, so
// it is computed again from the start rather than sent away, once.
TEST(WorkerCore, TheLastOneWithoutPagesIsPackedBeforeItIsGivenUp) {
  Bench bench = caching(100);
  bench.tell(WorkerMessage{Bench::submit(1, kA, 40, 10)});
  const SequenceId id = find<TakePrefixes>(bench.tell(EngineIdle{}))->sequences[0];
  bench.tell(PrefixesTaken{.sequences = {{id, 36}}});
  bench.tell(KvCounted{.kv = {{.model = kA, .pages = 14}}});
  ASSERT_NE(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
  StepDone starved{.starved = {id}, .took = 1ms};
  starved.counted.kv = {{.model = kA, .pages = 14}};
  const auto packing = bench.tell(starved);
  EXPECT_EQ(find<RequestFailed>(packing), nullptr);
  ASSERT_NE(find<PreemptSequence>(packing), nullptr);
  ASSERT_NE(find<TrimCached>(packing), nullptr);
  EXPECT_EQ(find<TrimCached>(packing)->keep, 0);
  bench.tell(KvCounted{.kv = {{.model = kA}}});
  const auto again = bench.tell(EngineIdle{});
  EXPECT_EQ(find<TakePrefixes>(again), nullptr);
  ASSERT_NE(find<RunStep>(again), nullptr);
  EXPECT_EQ(find<RunStep>(again)->plan.batches.at(0).slices.at(0).tokens, 40);
  starved.counted.kv = {{.model = kA}};
  const auto given_up = bench.tell(starved);
  EXPECT_EQ(find<PreemptSequence>(given_up), nullptr);
}

TEST(WorkerCore, LendsPagesAndIsTheSmallerForItUntilTheyAreGivenBack) {
  Bench bench;
  const LendPages lend{.model = kB, .basis = {.epoch = WorkerEpoch(1)}, .count = 12};
  const auto lent = bench.tell(WorkerMessage{lend});
  ASSERT_NE(find<SurrenderPages>(lent), nullptr);
  EXPECT_EQ(find<SurrenderPages>(lent)->count, 12);
  EXPECT_EQ(bench.core.report().usage.total, 8);
  EXPECT_NE(find<LoadRefused>(bench.tell(WorkerMessage{Bench::load(kA, 8)})), nullptr);
  GivePages give;
  for (std::uint64_t i = 0; i < 5; ++i) {
    give.pages.emplace_back(300 + i);
  }
  EXPECT_EQ(find<AdoptPages>(bench.tell(WorkerMessage{give}))->pages.size(), 5U);
  EXPECT_EQ(bench.core.report().usage.free, 13);
  EXPECT_NE(find<OpenModel>(bench.tell(WorkerMessage{Bench::load(kA, 8, 1)})), nullptr);
}

TEST(WorkerCore, ALoanWaitsForPagesOnTheirWayAndIsRefusedWithoutThem) {
  Bench bench;
  bench.serve(kA, 15);
  bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kWhenIdle, 0)});
  const LendPages lend{.model = kB, .basis = {.epoch = WorkerEpoch(1)}, .count = 12};
  EXPECT_EQ(find<SurrenderPages>(bench.tell(WorkerMessage{lend})), nullptr);
  EXPECT_NE(find<SurrenderPages>(bench.tell(ModelClosed{.model = kA})), nullptr);
  const auto refused = bench.tell(WorkerMessage{lend});
  ASSERT_NE(find<LoadRefused>(refused), nullptr);
  EXPECT_EQ(find<LoadRefused>(refused)->reason.code, Code::kResourceExhausted);
}

// ---- Grammars ----

Submit constrained(std::uint64_t request, ModelId model) {
  Submit submit = Bench::submit(request, model, 4, 2);
  submit.choices[0].params.grammar = {.kind = spec::GrammarKind::kRegex, .text = "[0-9]+"};
  return submit;
}

TEST(WorkerCore, NobodyWaitsForAGrammarThatIsBeingCompiled) {
  Bench bench;
  bench.serve(kA, 8);
  const auto added = bench.tell(WorkerMessage{constrained(1, kA)});
  const SequenceId waiting = find<AddSequence>(added)->sequence;
  EXPECT_EQ(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
  EXPECT_EQ(bench.core.report().models.at(0).residency, Residency::kServing) << "it is in use";

  bench.tell(WorkerMessage{Bench::submit(2, kA, 4, 2)});
  const auto others = bench.tell(EngineIdle{});
  ASSERT_NE(find<RunStep>(others), nullptr);
  const policy::StepPlan plan = find<RunStep>(others)->plan;
  ASSERT_EQ(plan.batches.at(0).slices.size(), 1U);
  EXPECT_NE(plan.batches[0].slices[0].sequence, waiting);
  bench.tell(done(plan, 0, 1));

  bench.tell(SequenceReady{.sequence = waiting});
  const auto both = bench.tell(EngineIdle{});
  EXPECT_EQ(find<RunStep>(both)->plan.batches.at(0).slices.size(), 2U);
}

TEST(WorkerCore, NobodyWaitsForAnAdapterThatIsBeingOpened) {
  Bench bench;
  bench.serve(kA, 8);
  Submit submit = Bench::submit(1, kA, 4, 2);
  submit.adapter = "fine";
  const auto added = bench.tell(WorkerMessage{submit});
  EXPECT_EQ(find<AddSequence>(added)->adapter, "fine");
  EXPECT_EQ(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
  bench.tell(SequenceReady{.sequence = find<AddSequence>(added)->sequence});
  EXPECT_NE(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
}

TEST(WorkerCore, ARequestEndsOrGoesBackWhileItsGrammarIsCompiled) {
  Bench bench;
  bench.serve(kA, 8);
  const auto added = bench.tell(WorkerMessage{constrained(1, kA)});
  const SequenceId first = find<AddSequence>(added)->sequence;
  const auto cancelled = bench.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  EXPECT_EQ(find<RemoveSequence>(cancelled)->sequence, first);
  bench.tell(SequenceReady{.sequence = first});  // On its way already.
  EXPECT_EQ(find<RunStep>(bench.tell(EngineIdle{})), nullptr);

  const auto second = bench.tell(WorkerMessage{constrained(2, kA)});
  const auto failed = bench.tell(SequenceRefused{.sequence = find<AddSequence>(second)->sequence,
                                                 .error = {Code::kInvalidArgument, "no"}});
  EXPECT_EQ(find<RequestFailed>(failed)->request, RequestId(2));

  bench.tell(WorkerMessage{constrained(3, kA)});
  EXPECT_EQ(find<CloseModel>(bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kWhenIdle, 8)})),
            nullptr);
  const auto evicted = bench.tell(WorkerMessage{Bench::evict(kA, EvictMode::kNow, 8)});
  EXPECT_EQ(find<RequestReturned>(evicted)->request, RequestId(3));
}

}  // namespace
}  // namespace heddle::core
