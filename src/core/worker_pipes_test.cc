// WorkerCore with models that are stages of a pipeline: a random world in which the leader's core
// drives an engine and stages that are counted only, and the leases of followers.

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "core/test_find.h"
#include "core/test_worker.h"
#include "core/worker_core.h"

namespace heddle::core {
namespace {

using namespace std::chrono_literals;
using test::find;
using test::load_of;
using test::submit_of;

constexpr ModelId kA{1};
constexpr ModelId kB{2};
constexpr std::int64_t kPages = test::kWorkerPages;

WorkerOptions options(std::int64_t prefix_cache = 0) {
  return {.epoch = WorkerEpoch(1),
          .pages = kPages,
          .step = {.budget = 10ms, .max_batch_tokens = 64},
          .prefix_cache = prefix_cache};
}

/// A core that is told events and remembers what it wants.
struct Bench : test::TestWorker {
  [[nodiscard]] ledger::Share piped() const {
    return core.report().usage.of(ledger::LeaseKind::kShardPipe);
  }
};

TEST(WorkerPipes, AFollowerBesideOtherModelsReservesHalfAndWhatItWasLoadedFor) {
  for (const auto& [least, reserved] : {std::pair{1, 15}, {20, 20}}) {
    Bench bench;
    LoadModel stage = load_of(kA, 8);
    stage.footprint.min_kv_pages = least;
    bench.tell(WorkerMessage{stage});
    bench.tell(ModelOpened{.model = kA});
    bench.tell(PipeJoined{.model = kA, .stage = 1, .shared = true});
    EXPECT_EQ(bench.piped().held, reserved) << "of 31 that are free";
    bench.serve(load_of(kB, 8));
    EXPECT_EQ(bench.piped().held, reserved);
  }
}

TEST(WorkerPipes, AFollowerReservesWhatIsFreeUntilThePipelineEnds) {
  Bench bench;
  bench.serve(load_of(kA, 8));
  const auto joined = bench.tell(PipeJoined{.model = kA, .stage = 1});
  ASSERT_NE(find<ReservePipe>(joined), nullptr);
  EXPECT_EQ(find<ReservePipe>(joined)->pages, 31);
  EXPECT_EQ(find<ReservePipe>(joined)->kv, test::kWorkerKv);
  EXPECT_EQ(bench.piped(), (ledger::Share{.reserved = 31, .held = 31}));
  EXPECT_EQ(bench.core.report().models.at(0).kv_pages, 31);
  EXPECT_EQ(bench.core.report().usage.free, 0);
  const auto left = bench.tell(PipeLeft{.model = kA});
  EXPECT_EQ(find<ReservePipe>(left)->pages, 0);
  EXPECT_EQ(bench.core.report().usage.free, 31);
  EXPECT_EQ(find<ReservePipe>(bench.tell(PipeLeft{.model = kA})), nullptr);
}

TEST(WorkerPipes, AReservationEndsWithTheModel) {
  Bench bench;
  bench.serve(load_of(kA, 8));
  bench.tell(PipeJoined{.model = kA, .stage = 2});
  const auto evicted = bench.tell(WorkerMessage{
      EvictModel{.model = kA, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
  EXPECT_EQ(find<ReservePipe>(evicted)->pages, 0);
  EXPECT_NE(find<CloseModel>(evicted), nullptr);
  EXPECT_EQ(bench.piped(), ledger::Share{});
  bench.tell(PipeLeft{.model = kA});
  bench.tell(PipeJoined{.model = kA, .stage = 2});
  EXPECT_EQ(bench.piped(), ledger::Share{}) << "it is on its way out";
  bench.tell(ModelClosed{.model = kA});
  bench.serve(load_of(kB, 30));
  EXPECT_EQ(bench.core.report().usage.free, 9);
}

TEST(WorkerPipes, EveryReservationEndsInAnyWorld) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    Bench bench;
    std::set<ModelId> closing;
    const auto hear = [&](const WorkerEvent& event) {
      for (const WorkerCommand& command : bench.tell(event)) {
        if (const auto* close = std::get_if<CloseModel>(&command)) {
          closing.insert(close->model);
        } else if (const auto* open = std::get_if<OpenModel>(&command)) {
          closing.erase(open->model);
        }
      }
    };
    const auto evict = [&](ModelId model) {
      hear(WorkerMessage{
          EvictModel{.model = model, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
    };
    int reserved = 0;
    for (int round = 0; round < 300; ++round) {
      const ModelId model = rng.below(2) == 0 ? kA : kB;
      switch (rng.below(6)) {
        case 0: {
          LoadModel message = load_of(model, 6);
          message.basis.version = bench.core.report().version;
          hear(WorkerMessage{message});
          break;
        }
        case 1:
          hear(ModelOpened{.model = model});
          break;
        case 2:
          hear(PipeJoined{.model = model, .stage = static_cast<std::int64_t>(rng.below(3))});
          break;
        case 3:
          hear(PipeLeft{.model = model});
          break;
        case 4:
          evict(model);
          break;
        default:
          if (closing.erase(model) > 0) {
            hear(ModelClosed{.model = model});
          }
      }
      reserved += bench.piped().held > 0 ? 1 : 0;
    }
    EXPECT_GT(reserved, 0);
    for (const ModelId model : {kA, kB, kA, kB}) {  // What waited for the first may come in yet.
      evict(model);
      if (closing.erase(model) > 0) {
        hear(ModelClosed{.model = model});
      }
    }
    EXPECT_EQ(bench.piped(), ledger::Share{});
    EXPECT_EQ(bench.core.report().usage.free, kPages);
  }
}

TEST(WorkerPipes, ALeaderRunsWhenAllOthersHaveTheirPages) {
  Bench bench;
  bench.serve(load_of(kA, 8));
  bench.tell(PipeJoined{.model = kA, .stage = 0});
  bench.tell(WorkerMessage{submit_of(1, kA, 3, 9)});
  EXPECT_EQ(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
  bench.tell(PipeReady{.model = kA, .followers = {{.kv = test::kWorkerKv, .pages = 5}}});
  EXPECT_NE(find<RunStep>(bench.tell(EngineIdle{})), nullptr);
}

TEST(WorkerPipes, WhatNoStageCouldHoldIsRefusedAtOnce) {
  Bench bench;
  bench.serve(load_of(kA, 8));
  bench.tell(PipeJoined{.model = kA, .stage = 0});
  bench.tell(PipeReady{
      .model = kA,
      .followers = {{.kv = test::kWorkerKv, .pages = 9}, {.kv = test::kWorkerKv, .pages = 5}}});
  const auto failed = bench.tell(WorkerMessage{submit_of(1, kA, 30, 11)});
  ASSERT_NE(find<RequestFailed>(failed), nullptr);
  EXPECT_EQ(find<RequestFailed>(failed)->error.message,
            "41 tokens need 6 pages of KV on a stage of the pipeline, which has 5");
  EXPECT_EQ(find<RequestFailed>(bench.tell(WorkerMessage{submit_of(2, kA, 30, 10)})), nullptr);
}

TEST(WorkerPipes, StagesEachHaveABatchToRun) {
  Bench bench;
  bench.serve(load_of(kA, 8));
  bench.tell(PipeJoined{.model = kA, .stage = 0});
  bench.tell(PipeReady{
      .model = kA,
      .followers = {{.kv = test::kWorkerKv, .pages = 31}, {.kv = test::kWorkerKv, .pages = 31}}});
  for (std::uint64_t request = 1; request <= 6; ++request) {
    bench.tell(WorkerMessage{submit_of(request, kA, 2, 9)});
  }
  std::vector<std::size_t> sizes;
  for (int batch = 0; batch < 4; ++batch) {
    const auto commands = bench.tell(EngineIdle{});
    const RunStep* run = find<RunStep>(commands);
    if (run == nullptr) {
      break;
    }
    StepDone done{.took = 1ms};
    for (const policy::StepSlice& slice : run->plan.batches.at(0).slices) {
      done.in_pipe.push_back(slice.sequence);
    }
    sizes.push_back(done.in_pipe.size());
    bench.tell(done);
  }
  EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 2, 2}));
}

/// A leader's core, with an engine and stages that count tokens and pages. Stages lose pages and
/// prefixes at random; requests come, end and are cancelled, and the model is evicted now and then.
class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seed), core_(options(50)) { open(); }

  void run() {
    for (int round = 0; round < 3'000; ++round) {
      now_ += 1ms;
      act();
      while (idle()) {
        if (rng_.below(3) == 0) {
          break;
        }
      }
    }
    calm_ = true;
    for (int round = 0; round < 20'000 && !requests_.empty(); ++round) {
      now_ += 1ms;
      come_back();
      while (idle()) {
      }
    }
    EXPECT_TRUE(requests_.empty()) << "all end";
    EXPECT_GT(ended_, 20);
    EXPECT_GT(refused_, 0);
    const DeviceReport report = core_.report();
    EXPECT_EQ(report.usage.of(ledger::LeaseKind::kKvOwn).held, 0);
  }

 private:
  struct Request {
    std::int64_t prompt = 0;
    std::int64_t most = 0;
    std::int64_t told = 0;  ///< Tokens, whose positions followed each other.
  };
  struct Sequence {
    std::int64_t tokens = 0;
    std::int64_t prompt = 0;
    std::int64_t most = 0;
    std::int64_t computed = 0;
    std::uint64_t begun = 0;  ///< Which of its lives: a batch of another is none of its.
    bool away = false;
    std::int64_t slice = 0;  ///< Tokens that are away.

    [[nodiscard]] std::int64_t pages() const { return (computed + (away ? slice : 0) + 7) / 8; }
  };
  struct Slice {
    SequenceId sequence{};
    std::uint64_t begun = 0;
    std::int64_t tokens = 0;
  };

  void open() {
    tell(WorkerMessage{load_of(kA, 8)});
    tell(ModelOpened{.model = kA});
    tell(PipeJoined{.model = kA, .stage = 0});
    tell(PipeReady{.model = kA, .followers = {{.kv = test::kWorkerKv, .pages = 24}}});
  }

  void act() {
    const std::uint64_t draw = rng_.below(100);
    if (draw < 12 && requests_.size() < 9) {
      const std::uint64_t id = ++ids_;
      requests_[RequestId(id)] = {.prompt = 1 + static_cast<std::int64_t>(rng_.below(40)),
                                  .most = 1 + static_cast<std::int64_t>(rng_.below(20))};
      ask(RequestId(id));
    } else if (draw < 14 && !requests_.empty()) {
      const RequestId id = any_request();
      requests_.erase(id);
      tell(WorkerMessage{CancelRequest{.request = id}});
    } else if (draw < 15) {
      batches_.clear();
      tell(WorkerMessage{
          EvictModel{.model = kA, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
      EXPECT_TRUE(sequences_.empty());
      tell(ModelClosed{.model = kA});
      open();
      const auto all = requests_;
      for (const auto& [id, request] : all) {
        ask(id);
      }
    } else {
      come_back();
    }
  }

  RequestId any_request() {
    auto at = requests_.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(rng_.below(requests_.size())));
    return at->first;
  }

  /// The request is submitted with what is known of it.
  void ask(RequestId id) {
    const Request& request = requests_.at(id);
    Submit message =
        submit_of(id.value(), kA, static_cast<std::size_t>(request.prompt), request.most);
    message.choices[0].generated.resize(static_cast<std::size_t>(request.told), 5);
    tell(WorkerMessage{message});
  }

  /// Whether a step was run.
  bool idle() {
    const std::size_t before = steps_;
    tell(EngineIdle{});
    return steps_ > before;
  }

  void come_back() {
    if (batches_.empty()) {
      return;
    }
    const std::vector<Slice> batch = std::move(batches_.front());
    batches_.pop_front();
    PipeReturned returned{.model = kA};
    for (const Slice& slice : batch) {
      const auto found = sequences_.find(slice.sequence);
      if (found == sequences_.end() || found->second.begun != slice.begun) {
        continue;
      }
      Sequence& own = found->second;
      HEDDLE_CHECK(own.away);
      own.away = false;
      if (!calm_ && rng_.below(25) == 0) {
        returned.refused.push_back(slice.sequence);
        ++refused_;
        continue;
      }
      returned.slices.push_back(finish(slice, own));
    }
    returned.counted = counted();
    tell(returned);
  }

  static SliceDone finish(const Slice& slice, Sequence& own) {
    own.computed += slice.tokens;
    SliceDone done{.sequence = slice.sequence, .computed = own.computed};
    if (own.computed == own.tokens) {
      done.token = 5;
      done.position = own.tokens - own.prompt;
      ++own.tokens;
      done.finish = own.tokens - own.prompt == own.most ? spec::FinishReason::kLength
                                                        : spec::FinishReason::kNone;
    }
    return done;
  }

  [[nodiscard]] KvCounted counted() const {
    KvCounted counted{.kv = {{.model = kA}}};
    for (const auto& [id, own] : sequences_) {
      counted.kv[0].pages += own.pages();
    }
    return counted;
  }

  void tell(const WorkerEvent& event) {
    std::deque<WorkerEvent> events{event};
    while (!events.empty() && !testing::Test::HasFatalFailure()) {
      std::vector<WorkerCommand> commands;
      core_.step(now_, events.front(), commands);
      core_.check_invariants();
      events.pop_front();
      bool changed = false;
      for (const WorkerCommand& command : commands) {
        changed |= carry_out(command, events);
      }
      if (changed) {
        events.emplace_back(counted());
      }
    }
  }

  /// Whether KV has changed but for a step.
  bool carry_out(const WorkerCommand& command, std::deque<WorkerEvent>& events) {
    if (const auto* add = std::get_if<AddSequence>(&command)) {
      sequences_[add->sequence] = {.tokens = std::ssize(add->tokens),
                                   .prompt = add->prompt_tokens,
                                   .most = add->params.max_tokens,
                                   .begun = ++lives_};
    } else if (const auto* remove = std::get_if<RemoveSequence>(&command)) {
      HEDDLE_CHECK(sequences_.erase(remove->sequence) == 1);
      return true;
    } else if (const auto* preempt = std::get_if<PreemptSequence>(&command)) {
      Sequence& own = sequences_.at(preempt->sequence);
      own.computed = 0;
      own.begun = ++lives_;
      own.away = false;
      return true;
    } else if (const auto* take = std::get_if<TakePrefixes>(&command)) {
      PrefixesTaken taken;
      for (const SequenceId id : take->sequences) {
        Sequence& own = sequences_.at(id);
        HEDDLE_CHECK(own.computed == 0 && !own.away);
        own.computed = rng_.below(2) == 0 ? 0 : (own.tokens - 1) / 4 * 4;
        taken.sequences.push_back({.sequence = id, .computed = own.computed});
      }
      events.emplace_back(taken);
      return true;
    } else if (const auto* run = std::get_if<RunStep>(&command)) {
      step(run->plan, events);
    } else if (const auto* report = std::get_if<Report>(&command)) {
      hear(report->report, events);
    }
    return false;
  }

  void step(const policy::StepPlan& plan, std::deque<WorkerEvent>& events) {
    ++steps_;
    StepDone done{.took = 1ms};
    std::vector<Slice> batch;
    std::int64_t free = kPages - 9;
    for (const auto& [id, own] : sequences_) {
      free -= own.pages();
    }
    HEDDLE_CHECK(plan.batches.size() == 1);
    for (const policy::StepSlice& slice : plan.batches[0].slices) {
      Sequence& own = sequences_.at(slice.sequence);
      HEDDLE_CHECK(!own.away && own.computed + slice.tokens <= own.tokens);
      const std::int64_t need = (own.computed + slice.tokens + 7) / 8 - own.pages();
      if (need > free) {
        done.starved.push_back(slice.sequence);
        continue;
      }
      free -= need;
      own.away = true;
      own.slice = slice.tokens;
      done.in_pipe.push_back(slice.sequence);
      batch.push_back({.sequence = slice.sequence, .begun = own.begun, .tokens = slice.tokens});
    }
    done.counted = counted();
    if (!batch.empty()) {
      batches_.push_back(std::move(batch));
    }
    events.emplace_back(done);
  }

  void hear(const WorkerReport& report, std::deque<WorkerEvent>& events) {
    if (const auto* produced = std::get_if<TokensProduced>(&report)) {
      for (const TokenEvent& token : produced->tokens) {
        const auto found = requests_.find(token.request);
        ASSERT_NE(found, requests_.end()) << "a token of a request that has ended";
        ASSERT_EQ(token.position, found->second.told) << "no position twice, and none left out";
        ++found->second.told;
        if (token.finish != spec::FinishReason::kNone) {
          requests_.erase(found);
          ++ended_;
        }
      }
    } else if (const auto* failed = std::get_if<RequestFailed>(&report)) {
      ASSERT_EQ(failed->error.code, Code::kResourceExhausted) << failed->error.message;
      EXPECT_EQ(requests_.erase(failed->request), 1U);
      ++ended_;
    } else if (const auto* device = std::get_if<DeviceReport>(&report)) {
      if (device->pages_wanted > 0) {
        events.emplace_back(WorkerMessage{NoPages{.model = device->wanted_by}});
      }
    }
  }

  Rng rng_;
  WorkerCore core_;
  Instant now_{1s};
  bool calm_ = false;  ///< Nothing is refused any more.
  std::map<RequestId, Request> requests_{};
  std::map<SequenceId, Sequence> sequences_{};
  std::deque<std::vector<Slice>> batches_{};  ///< That are away.
  std::uint64_t ids_ = 0;
  std::uint64_t lives_ = 0;
  std::size_t steps_ = 0;
  int ended_ = 0;
  int refused_ = 0;
};

TEST(WorkerPipes, NothingIsLostAndNoPositionComesTwiceInAnyWorld) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    World world(seed);
    world.run();
    if (testing::Test::HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace heddle::core
