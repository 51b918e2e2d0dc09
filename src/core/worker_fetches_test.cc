// A worker whose requests ran elsewhere before: it fetches their KV, and computes what it lacks.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/test_find.h"
#include "core/worker_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;

constexpr ModelId kFetched{1};
constexpr std::int64_t kPageTokens = 8;
const std::vector<KvSource> kKvSources{{.device = DeviceId(7), .model = ModelId(5)}};

/// A worker with a model, and its engine, which does as it is told.
class FetchBench {
 public:
  explicit FetchBench(WorkerOptions options = {.prefix_cache = 100})
      : core_(with_device(std::move(options))) {
    LoadModel load{.model = kFetched,
                   .basis = {.epoch = WorkerEpoch(1)},
                   .pages = {PageId{0}, PageId{1}},
                   .image_bytes = 1000,
                   .ready_bytes = 1000,
                   .footprint = {.image_pages = 2,
                                 .overhead_pages = 1,
                                 .min_kv_pages = 1,
                                 .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}}};
    tell(WorkerMessage{load});
    tell(ModelOpened{.model = kFetched});
  }

  std::vector<WorkerCommand> submit(std::uint64_t request,
                                    std::size_t prompt,
                                    std::size_t generated = 0,
                                    std::uint32_t choices = 1,
                                    std::vector<KvSource> kv = kKvSources) {
    Submit submit{
        .request = RequestId(request), .model = kFetched, .due = 10s, .kv = std::move(kv)};
    submit.prompt.resize(prompt, 7);
    for (std::uint32_t choice = 0; choice < choices; ++choice) {
      SubmitChoice& one = submit.choices.emplace_back();
      one.generated.resize(generated, 5);
      one.params.choice = choice;
      one.params.max_tokens = 20;
    }
    return tell(WorkerMessage{submit});
  }

  std::vector<WorkerCommand> tell(const WorkerEvent& event) {
    std::vector<WorkerCommand> commands;
    core_.step(now, event, commands);
    core_.check_invariants();
    for (const WorkerCommand& command : commands) {
      note(command);
    }
    return commands;
  }
  /// The engine has nothing to do: what it is to do next.
  std::vector<WorkerCommand> idle() {
    std::vector<WorkerCommand> commands = tell(EngineIdle{});
    if (const auto* take = find<TakePrefixes>(commands)) {
      PrefixesTaken taken;
      for (const SequenceId id : take->sequences) {
        engine.at(id).computed = cached;
        taken.sequences.push_back({.sequence = id, .computed = cached});
      }
      std::vector<WorkerCommand> more = tell(taken);
      std::ranges::move(more, std::back_inserter(commands));
      more = tell(counted());
      std::ranges::move(more, std::back_inserter(commands));
    }
    return commands;
  }
  /// Some of the KV of a sequence has come.
  std::vector<WorkerCommand> fetched(SequenceId id, std::int64_t computed, bool done) {
    engine.at(id).computed = computed;
    asked.erase(id);
    return tell(
        KvFetched{.sequence = id, .computed = computed, .done = done, .counted = counted()});
  }
  /// Runs the step that a command asks for.
  void run(const RunStep& step, bool end = false) {
    StepDone done{.took = 1ms};
    for (const policy::ModelBatch& batch : step.plan.batches) {
      for (const policy::StepSlice& slice : batch.slices) {
        Running& own = engine.at(slice.sequence);
        own.computed += slice.tokens;
        SliceDone result{.sequence = slice.sequence, .computed = own.computed};
        if (own.computed == own.tokens) {
          ++own.tokens;
          result.token = 5;
          --own.left;
          result.finish =
              end || own.left == 0 ? spec::FinishReason::kStop : spec::FinishReason::kNone;
        }
        done.slices.push_back(result);
      }
    }
    done.counted = counted();
    tell(done);
    tell(counted());
  }

  [[nodiscard]] KvCounted counted() const {
    std::int64_t pages = 0;
    for (const auto& [id, own] : engine) {
      pages += (own.computed + kPageTokens - 1) / kPageTokens;
    }
    return {.kv = {{.model = kFetched, .pages = pages}}};
  }

  struct Running {
    std::int64_t tokens = 0;
    std::int64_t computed = 0;
    std::int64_t left = 0;  ///< Tokens that may be generated.
  };
  Instant now{1s};
  std::map<SequenceId, Running> engine{};
  std::map<SequenceId, int> asked{};  ///< FetchKv without an answer, or EndFetch.
  std::vector<KvMoved> moved{};
  std::vector<RequestReturned> returned{};
  std::int64_t cached = 0;  ///< Tokens that are found as a prefix.

 private:
  static WorkerOptions with_device(WorkerOptions options) {
    options.epoch = WorkerEpoch(1);
    options.pages = 40;
    options.step = {.budget = 10ms, .max_batch_tokens = 64};
    return options;
  }
  void note(const WorkerCommand& command) {
    if (const auto* add = std::get_if<AddSequence>(&command)) {
      engine[add->sequence] = {.tokens = std::ssize(add->tokens),
                               .left = 20 - (std::ssize(add->tokens) - add->prompt_tokens)};
    } else if (const auto* remove = std::get_if<RemoveSequence>(&command)) {
      engine.erase(remove->sequence);
      asked.erase(remove->sequence);
    } else if (const auto* preempt = std::get_if<PreemptSequence>(&command)) {
      engine.at(preempt->sequence).computed = 0;
      asked.erase(preempt->sequence);
    } else if (const auto* fetch = std::get_if<FetchKv>(&command)) {
      EXPECT_EQ(++asked[fetch->sequence], 1) << "one ask at a time";
    } else if (const auto* end = std::get_if<EndFetch>(&command)) {
      asked.erase(end->sequence);
    } else if (const auto* report = std::get_if<Report>(&command)) {
      if (const auto* kv = std::get_if<KvMoved>(&report->report)) {
        moved.push_back(*kv);
      } else if (const auto* back = std::get_if<RequestReturned>(&report->report)) {
        returned.push_back(*back);
      }
    }
  }

  WorkerCore core_;
};

TEST(WorkerFetches, ARequestWaitsForItsKvAndGoesOnWithIt) {
  FetchBench bench;
  bench.submit(1, 40, 3);
  std::vector<WorkerCommand> commands = bench.idle();
  const auto* fetch = find<FetchKv>(commands);
  ASSERT_NE(fetch, nullptr);
  EXPECT_EQ(fetch->from, kKvSources);
  EXPECT_EQ(find<RunStep>(commands), nullptr);
  const SequenceId id = fetch->sequence;
  EXPECT_EQ(find<RunStep>(bench.idle()), nullptr) << "it waits";
  EXPECT_NE(find<FetchKv>(bench.fetched(id, 16, false)), nullptr) << "the next part";
  EXPECT_TRUE(bench.moved.empty());
  bench.fetched(id, 40, true);
  ASSERT_EQ(bench.moved.size(), 1U);
  EXPECT_EQ(bench.moved[0],
            (KvMoved{.model = kFetched, .tokens = 40, .computed = 2, .request = RequestId(1)}));
  commands = bench.idle();
  const auto* run = find<RunStep>(commands);
  ASSERT_NE(run, nullptr);
  EXPECT_EQ(run->plan.batches[0].slices[0].tokens, 3) << "what it lacks, and no more";
}

TEST(WorkerFetches, OthersRunMeanwhile) {
  FetchBench bench;
  bench.submit(1, 40, 3);
  bench.submit(2, 10, 0, 1, {});
  bench.idle();
  const std::vector<WorkerCommand> commands = bench.idle();
  const auto* run = find<RunStep>(commands);
  ASSERT_NE(run, nullptr);
  ASSERT_EQ(run->plan.batches[0].slices.size(), 1U);
  EXPECT_EQ(run->plan.batches[0].slices[0].tokens, 10);
}

TEST(WorkerFetches, ItWaitsNoLongerThanComputingWouldTake) {
  FetchBench bench;
  bench.submit(1, 60, 3);
  const std::vector<WorkerCommand> commands = bench.idle();
  const SequenceId id = find<FetchKv>(commands)->sequence;
  bench.now += 1h;
  EXPECT_NE(find<EndFetch>(bench.fetched(id, 16, false)), nullptr);
  ASSERT_EQ(bench.moved.size(), 1U);
  EXPECT_EQ(bench.moved[0].tokens, 16U);
  EXPECT_EQ(bench.moved[0].computed, 46U);
  const std::vector<WorkerCommand> next = bench.idle();
  EXPECT_EQ(find<RunStep>(next)->plan.batches[0].slices[0].tokens, 47);
}

TEST(WorkerFetches, WhereNothingIsToBeHadItIsComputed) {
  FetchBench bench;
  bench.submit(1, 40);
  const SequenceId id = find<FetchKv>(bench.idle())->sequence;
  bench.fetched(id, 0, true);
  ASSERT_EQ(bench.moved.size(), 1U);
  EXPECT_EQ(bench.moved[0].tokens, 0U);
  EXPECT_EQ(bench.moved[0].computed, 0U) << "nobody had computed it for sure";
  EXPECT_NE(find<RunStep>(bench.idle()), nullptr);
}

TEST(WorkerFetches, AllChoicesHaveTheirsBeforeNobodyNeedsTheSourceAnyMore) {
  FetchBench bench;
  bench.submit(1, 4, 8, 2);  // Too short a prompt to share.
  const std::vector<WorkerCommand> commands = bench.idle();
  std::vector<SequenceId> ids;
  for (const WorkerCommand& command : commands) {
    if (const auto* fetch = std::get_if<FetchKv>(&command)) {
      ids.push_back(fetch->sequence);
    }
  }
  ASSERT_EQ(ids.size(), 1U) << "the other one will find its prompt";
  bench.fetched(ids[0], 8, true);
  const std::vector<WorkerCommand> first = bench.idle();
  bench.run(*find<RunStep>(first));
  const std::vector<WorkerCommand> second = bench.idle();
  ASSERT_NE(find<FetchKv>(second), nullptr);
  bench.fetched(find<FetchKv>(second)->sequence, 8, true);
  ASSERT_EQ(bench.moved.size(), 2U);
  EXPECT_EQ(bench.moved[0].request, RequestId{});
  EXPECT_EQ(bench.moved[1].request, RequestId(1));
}

TEST(WorkerFetches, WithoutCachedPrefixesNobodyIsAsked) {
  for (const WorkerOptions& options :
       {WorkerOptions{.prefix_cache = 0}, WorkerOptions{.prefix_cache = 100, .fixed_parts = 2}}) {
    FetchBench bench(options);
    bench.submit(1, 20, 3);
    ASSERT_EQ(bench.moved.size(), 1U) << "the source may go";
    EXPECT_EQ(bench.moved[0].request, RequestId(1));
    const std::vector<WorkerCommand> commands = bench.idle();
    EXPECT_EQ(find<FetchKv>(commands), nullptr);
  }
}

TEST(WorkerFetches, WhatComesAfterItsRequestWasCancelledIsForNobody) {
  FetchBench bench;
  bench.submit(1, 40, 3);
  const SequenceId id = find<FetchKv>(bench.idle())->sequence;
  bench.tell(WorkerMessage{CancelRequest{.request = RequestId(1)}});
  bench.tell(KvFetched{.sequence = id, .computed = 16, .counted = bench.counted()});
  EXPECT_TRUE(bench.moved.empty());
  EXPECT_EQ(find<RunStep>(bench.idle()), nullptr);
}

TEST(WorkerFetches, ThoseThatRunAreGivenUpOnlyWhereTheirKvStays) {
  for (const std::int64_t cache : {100, 0}) {
    FetchBench bench({.prefix_cache = cache});
    bench.submit(2, 10, 0, 1, {});
    bench.now += 1ms;
    bench.submit(3, 10, 0, 1, {});
    std::vector<WorkerCommand> commands = bench.idle();
    commands = find<RunStep>(commands) == nullptr ? bench.idle() : commands;
    bench.run(*find<RunStep>(commands));
    bench.tell(WorkerMessage{RecallRequests{.model = kFetched, .most = 1, .begun = true}});
    ASSERT_EQ(bench.returned.size(), cache > 0 ? 1U : 0U);
    if (cache > 0) {
      EXPECT_EQ(bench.returned[0].request, RequestId(2)) << "the oldest";
      EXPECT_TRUE(bench.returned[0].recalled);
      EXPECT_EQ(bench.engine.size(), 1U);
    }
  }
}

/// Requests with and without sources come, end, are cancelled and recalled; sources answer late,
/// with little or with nothing.
TEST(WorkerFetches, InAnyOrderEveryRequestEnds) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Rng rng(seed);
    FetchBench bench;
    std::uint64_t requests = 0;
    for (int round = 0; round < 400; ++round) {
      bench.now += std::chrono::milliseconds(rng.below(4));
      bench.cached = rng.below(3) == 0 ? 4 : 0;
      if (requests < 40 && rng.below(4) == 0) {
        bench.submit(++requests,
                     5 + rng.below(60),
                     rng.below(8),
                     static_cast<std::uint32_t>(1 + rng.below(2)),
                     rng.below(3) == 0 ? std::vector<KvSource>{} : kKvSources);
      }
      if (!bench.asked.empty() && rng.below(2) == 0) {
        const SequenceId id = bench.asked.begin()->first;
        const FetchBench::Running own = bench.engine.at(id);
        const auto left = static_cast<std::uint64_t>(own.tokens - own.computed);
        bench.fetched(
            id, own.computed + static_cast<std::int64_t>(rng.below(left)), rng.below(3) == 0);
      }
      if (requests > 0 && rng.below(20) == 0) {
        bench.tell(WorkerMessage{CancelRequest{.request = RequestId(1 + rng.below(requests))}});
      }
      if (rng.below(20) == 0) {
        bench.tell(WorkerMessage{
            RecallRequests{.model = kFetched, .most = 1, .begun = rng.below(2) == 0}});
      }
      const std::vector<WorkerCommand> commands = bench.idle();
      if (const auto* run = find<RunStep>(commands)) {
        bench.run(*run, rng.below(4) == 0);
      }
    }
    for (int round = 0; round < 2000 && !bench.engine.empty(); ++round) {
      bench.now += 1ms;
      if (!bench.asked.empty()) {
        const SequenceId id = bench.asked.begin()->first;
        bench.fetched(id, bench.engine.at(id).computed, true);
      }
      const std::vector<WorkerCommand> commands = bench.idle();
      if (const auto* run = find<RunStep>(commands)) {
        bench.run(*run, true);
      }
    }
    EXPECT_TRUE(bench.engine.empty());
  }
}

}  // namespace
}  // namespace heddle::core
