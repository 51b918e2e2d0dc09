#include <algorithm>
#include <map>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/test_find.h"
#include "core/worker_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr std::int64_t kTokensPerPage = 8;

/// A worker of 20 pages with two models, which leave 14 pages of 8 tokens to KV. Its engine does as
/// it is told; the requests are known by their numbers.
class Bench {
 public:
  explicit Bench(WorkerOptions options = {}) : core_(with_device(std::move(options))) {
    for (const ModelId model : {kA, kB}) {
      LoadModel load{.model = model,
                     .basis = {.epoch = WorkerEpoch(1)},
                     .image_bytes = 1000,
                     .ready_bytes = 1000,
                     .footprint = {.image_pages = model == kA ? 2 : 3,
                                   .overhead_pages = 1,
                                   .min_kv_pages = 1,
                                   .kv = {{.tokens_per_block = 4, .blocks_per_page = 2}}}};
      load.pages.resize(static_cast<std::size_t>(load.footprint.image_pages));
      tell(WorkerMessage{load});
      tell(ModelOpened{.model = model});
    }
  }

  void submit(std::uint64_t request,
              ModelId model,
              std::size_t prompt,
              Duration due = 10s,
              std::int32_t priority = 0) {
    Submit submit{.request = RequestId(request), .model = model, .due = due, .priority = priority};
    submit.prompt.resize(prompt, 7);
    submit.choices.resize(1);
    submit.choices[0].params.max_tokens = 50;
    for (const WorkerCommand& command : tell(WorkerMessage{submit})) {
      if (const auto* add = std::get_if<AddSequence>(&command)) {
        running_[add->sequence] = {
            .request = request, .model = model, .tokens = std::ssize(submit.prompt)};
      }
    }
    now_ += 1ms;
  }

  /// One step of the engine: the requests that took part, in the order of the plan. Those in `end`
  /// have their last token in it.
  std::vector<std::uint64_t> turn(const std::vector<std::uint64_t>& end = {}) {
    const std::vector<WorkerCommand> commands = tell(EngineIdle{});
    const RunStep* run = find<RunStep>(commands);
    if (run == nullptr) {
      return {};
    }
    StepDone done{.took = 1ms};
    std::vector<std::uint64_t> requests;
    std::vector<policy::SequenceId> ended;
    for (const policy::ModelBatch& batch : run->plan.batches) {
      for (const policy::StepSlice& slice : batch.slices) {
        Running& sequence = running_.at(slice.sequence);
        sequence.computed += slice.tokens;
        SliceDone& result = done.slices.emplace_back(
            SliceDone{.sequence = slice.sequence, .computed = sequence.computed});
        if (sequence.computed == sequence.tokens) {
          ++sequence.tokens;
          result.token = 5;
          if (std::ranges::count(end, sequence.request) > 0) {
            result.finish = spec::FinishReason::kStop;
            ended.push_back(slice.sequence);
          }
        }
        requests.push_back(sequence.request);
      }
    }
    done.counted = counted();
    tell(done);
    for (const policy::SequenceId id : ended) {
      running_.erase(id);
    }
    tell(counted());
    return requests;
  }

  [[nodiscard]] DeviceReport report() const { return core_.report(); }
  void pass(Duration time) { now_ += time; }
  /// Of each report so far that tells of a shortage, whose it is.
  [[nodiscard]] const std::vector<ModelId>& told_short() const { return told_short_; }

  /// The requests that are given up for it, in this order.
  std::vector<std::uint64_t> recall(ModelId model, std::int64_t most) {
    std::vector<std::uint64_t> returned;
    for (const WorkerCommand& command :
         tell(WorkerMessage{RecallRequests{.model = model, .most = most}})) {
      const auto* report = std::get_if<Report>(&command);
      const auto* said =
          report == nullptr ? nullptr : std::get_if<RequestReturned>(&report->report);
      if (said != nullptr) {
        EXPECT_TRUE(said->recalled);
        returned.push_back(said->request.value());
        std::erase_if(running_,
                      [&](const auto& entry) { return entry.second.request == returned.back(); });
      }
    }
    return returned;
  }

 private:
  struct Running {
    std::uint64_t request = 0;
    ModelId model{};
    std::int64_t tokens = 0;
    std::int64_t computed = 0;
  };

  static WorkerOptions with_device(WorkerOptions options) {
    options.epoch = WorkerEpoch(1);
    options.pages = 20;
    options.step = {.budget = 10ms, .max_batch_tokens = 64};
    return options;
  }

  std::vector<WorkerCommand> tell(const WorkerEvent& event) {
    std::vector<WorkerCommand> commands;
    core_.step(now_, event, commands);
    core_.check_invariants();
    for (const WorkerCommand& command : commands) {
      if (const auto* preempt = std::get_if<PreemptSequence>(&command)) {
        running_.at(preempt->sequence).computed = 0;
      }
      const auto* report = std::get_if<Report>(&command);
      const auto* said = report == nullptr ? nullptr : std::get_if<DeviceReport>(&report->report);
      if (said != nullptr && said->short_pages > 0) {
        told_short_.push_back(said->short_model);
      }
    }
    return commands;
  }

  [[nodiscard]] KvCounted counted() const {
    std::map<ModelId, std::int64_t> pages{{kA, 0}, {kB, 0}};
    for (const auto& [id, sequence] : running_) {
      pages[sequence.model] += (sequence.computed + kTokensPerPage - 1) / kTokensPerPage;
    }
    return {.kv = {{.model = kA, .pages = pages[kA]}, {.model = kB, .pages = pages[kB]}}};
  }

  Instant now_{1s};
  std::map<policy::SequenceId, Running> running_{};
  std::vector<ModelId> told_short_{};
  WorkerCore core_;
};

/// Each needs 3 pages: 4 tokens of prompt, and 20 more.
void submit_small(Bench& bench, std::uint64_t first, std::uint64_t last, ModelId model) {
  for (std::uint64_t id = first; id <= last; ++id) {
    bench.submit(id, model, 4);
  }
}

// The pages that one model's requests give back are the other's in the very next step; nothing is
// mapped, nobody is asked.
TEST(WorkerAdmission, ASpikeOfOneModelTakesWhatAnothersRequestsGiveBackWithinOneStep) {
  Bench bench;
  submit_small(bench, 1, 4, kA);
  EXPECT_THAT(bench.turn(), ElementsAre(1, 2, 3, 4));
  submit_small(bench, 11, 14, kB);
  EXPECT_THAT(bench.turn({1, 2, 3}), ElementsAre(1, 2, 3, 4)) << "12 of 14 pages are spoken for";
  EXPECT_THAT(bench.turn(), UnorderedElementsAre(4, 11, 12, 13));
}

TEST(WorkerAdmission, OfADividedDeviceAModelHasItsPartAndNoMore) {
  Bench bench({.fixed_parts = 2});  // 10 pages each, 7 of them for KV.
  submit_small(bench, 1, 4, kA);
  EXPECT_THAT(bench.turn(), ElementsAre(1, 2));
  submit_small(bench, 11, 14, kB);
  EXPECT_THAT(bench.turn({1, 2}), UnorderedElementsAre(1, 2, 11, 12)) << "nobody is held up by A";
  EXPECT_THAT(bench.turn(), UnorderedElementsAre(3, 4, 11, 12));
  EXPECT_THAT(bench.turn({3, 4}), UnorderedElementsAre(3, 4, 11, 12));
  EXPECT_THAT(bench.turn(), UnorderedElementsAre(11, 12)) << "what A leaves stays empty";
}

TEST(WorkerAdmission, WhatOutgrowsItsPartGivesWayButForTheLast) {
  Bench bench({.fixed_parts = 2});
  submit_small(bench, 1, 2, kA);
  std::int64_t most = 0;
  for (int i = 0; i < 40; ++i) {
    bench.turn();
    most = std::max(most, bench.report().models.at(0).kv_pages);
  }
  EXPECT_LE(most, 8) << "7, and the page by which that was noticed";
  EXPECT_EQ(bench.report().models.at(0).sequences, 2);
}

TEST(WorkerAdmission, PromptsOfAllModelsAreTakenUpByDeadline) {
  Bench bench;
  bench.submit(1, kA, 64, 900ms);
  bench.submit(2, kB, 64, 500ms);
  bench.submit(3, kA, 64, 200ms);
  std::vector<std::uint64_t> first;
  for (int i = 0; i < 6; ++i) {
    for (const std::uint64_t request : bench.turn({1, 2, 3})) {
      if (std::ranges::count(first, request) == 0) {
        first.push_back(request);
      }
    }
  }
  EXPECT_THAT(first, ElementsAre(3, 2, 1));
}

TEST(WorkerAdmission, ByArrivalTheyAreTakenUpAsTheyCame) {
  Bench bench({.queue = policy::QueueRule::kArrival});
  bench.submit(1, kA, 30, 900ms);
  bench.submit(2, kA, 30, 500ms);
  bench.submit(3, kA, 30, 200ms);
  EXPECT_THAT(bench.turn({1}), ElementsAre(1, 2));
}

TEST(WorkerAdmission, APriorityGoesFirstWhateverIsDue) {
  for (const auto queue : {policy::QueueRule::kMooreHodgson, policy::QueueRule::kArrival}) {
    Bench bench({.queue = queue});
    bench.submit(1, kA, 80, 1ms);  // 13 of 14 pages.
    bench.submit(2, kA, 80, 10s, /*priority=*/-1);
    EXPECT_THAT(bench.turn(), ElementsAre(2));
  }
}

TEST(WorkerAdmission, WhoDoesNotFitHoldsUpItsOwnModelOnly) {
  Bench bench;
  submit_small(bench, 1, 2, kA);
  bench.turn();
  bench.submit(3, kA, 60, 100ms);  // 10 pages, and 8 are left.
  bench.submit(4, kA, 4, 200ms);
  bench.submit(5, kB, 4, 300ms);
  EXPECT_THAT(bench.turn(), UnorderedElementsAre(1, 2, 5));
}

TEST(WorkerAdmission, WhoWaitsForPagesAloneIsReported) {
  Bench bench;
  submit_small(bench, 1, 4, kA);
  bench.turn();
  EXPECT_EQ(bench.report().short_sequences, 0) << "nobody waits";
  bench.submit(5, kB, 20);  // 5 pages, and what runs may grow into all there are.
  bench.submit(6, kA, 4);
  bench.turn();
  const DeviceReport report = bench.report();
  EXPECT_EQ(report.short_sequences, 2);
  EXPECT_EQ(report.short_pages, 5 + 3);
  EXPECT_EQ(report.short_model, kA);
  EXPECT_EQ(report.pages_wanted, 0) << "others run";
}

TEST(WorkerAdmission, ModelsOfWhichSomebodyWaitsForPagesAreToldOfInTurn) {
  Bench bench;
  submit_small(bench, 1, 4, kA);
  bench.turn();
  bench.submit(5, kB, 20);
  bench.submit(6, kA, 4);
  for (int i = 0; i < 20; ++i) {
    bench.pass(1s);
    bench.turn();
  }
  const std::vector<ModelId> told = bench.told_short();
  ASSERT_GE(told.size(), 3U);
  for (std::size_t i = 1; i < told.size(); ++i) {
    EXPECT_NE(told[i], told[i - 1]) << "report " << i;
  }
}

TEST(WorkerAdmission, WhoWaitsForPagesCanBeRecalledTheOldestFirst) {
  Bench bench;
  submit_small(bench, 1, 4, kA);
  bench.turn();
  EXPECT_THAT(bench.recall(kA, 10), IsEmpty()) << "nobody waits";
  bench.submit(5, kB, 20);
  submit_small(bench, 6, 8, kA);
  bench.turn();
  EXPECT_THAT(bench.recall(kA, 2), ElementsAre(6, 7)) << "those before them have pages";
  EXPECT_EQ(bench.report().short_sequences, 2);
  EXPECT_THAT(bench.recall(kB, 2), ElementsAre(5));
  EXPECT_THAT(bench.turn({1, 2, 3, 4}), UnorderedElementsAre(1, 2, 3, 4)) << "they went on";
  EXPECT_THAT(bench.turn(), ElementsAre(8));
}

TEST(WorkerAdmission, WhoWillBeLateIsToldOf) {
  Bench bench;
  const auto late = [&] { return bench.report().models.at(0).late; };
  for (std::uint64_t request = 1; request <= 6; ++request) {
    bench.submit(request, kA, 8, 50ms);
  }
  EXPECT_EQ(late(), 0);
  bench.pass(1s);
  EXPECT_THAT(bench.turn(), ElementsAre(1, 2, 3, 4)) << "there are pages for four";
  EXPECT_EQ(bench.report().models.at(0).model, kA);
  EXPECT_EQ(late(), 2);
  EXPECT_THAT(bench.recall(kA, 1), ElementsAre(5));
  EXPECT_EQ(late(), 1);
  bench.turn({1, 2, 3});
  EXPECT_THAT(bench.turn(), ElementsAre(4, 6));
  EXPECT_EQ(late(), 0);
}

TEST(WorkerAdmission, OfADividedDeviceNobodyCouldLendPages) {
  Bench bench({.fixed_parts = 2});
  submit_small(bench, 1, 4, kA);  // 2 of them fit in its part.
  bench.turn();
  EXPECT_EQ(bench.report().short_pages, 0);
}

// A stream of small requests takes every page that comes free, until the large one is overdue.
TEST(WorkerAdmission, ALargeRequestDoesNotStarveBesideSmallOnes) {
  Bench bench;
  submit_small(bench, 1, 4, kB);
  bench.turn();
  bench.submit(100, kA, 70, 5ms);  // 12 pages.
  std::uint64_t next = 5;
  for (int i = 0; i < 500; ++i) {
    bench.submit(next, kB, 4, 1s);
    const std::vector<std::uint64_t> ran = bench.turn({next - 4});
    ++next;
    if (std::ranges::count(ran, 100U) > 0) {
      return;
    }
  }
  FAIL() << "it waits still";
}

}  // namespace
}  // namespace heddle::core
