#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/rng.h"
#include "core/worker_core.h"

namespace heddle::core::test {

using namespace std::chrono_literals;

inline constexpr ModelId kStages{1};
inline constexpr ModelId kWhole{2};
inline constexpr std::int64_t kImage = 8;
inline constexpr std::int64_t kBlock = 4;
inline constexpr std::int64_t kPage = 2 * kBlock;  ///< Tokens.
inline constexpr std::int64_t kPiece = 6;          ///< Tokens, of which two may be away.

inline std::int64_t pages_of(std::int64_t tokens) {
  return (tokens + kPage - 1) / kPage;
}

inline LoadModel load(ModelId model) {
  LoadModel load{.model = model,
                 .basis = {.epoch = WorkerEpoch(1)},
                 .image_bytes = 1000,
                 .ready_bytes = 1000,
                 .footprint = {.image_pages = kImage,
                               .overhead_pages = 1,
                               .min_kv_pages = 1,
                               .kv = {{.tokens_per_block = kBlock, .blocks_per_page = 2}}}};
  for (std::int64_t i = 0; i < kImage; ++i) {
    load.pages.emplace_back(100 * model.value() + static_cast<std::uint64_t>(i));
  }
  return load;
}

/// A core, with an engine and stages that count tokens and pages.
class Rig {
 public:
  struct Asked {
    std::int64_t prompt = 0;
    std::int64_t most = 0;
    /// Tokens by choice, whose positions followed each other; those that have ended are gone.
    std::map<std::uint32_t, std::int64_t> told{};
    ModelId at{};
  };
  struct Known {  // A sequence in the engine.
    RequestId request{};
    ModelId model{};
    std::int64_t tokens = 0;
    std::int64_t prompt = 0;
    std::int64_t most = 0;
    std::int64_t computed = 0;
    std::uint64_t begun = 0;
    bool away = false;
    std::int64_t slice = 0;

    [[nodiscard]] std::int64_t pages() const { return pages_of(computed + (away ? slice : 0)); }
  };
  struct Shadow {  // What has come of one to the whole model.
    RequestId request{};
    std::uint64_t begun = 0;
    std::int64_t asked = 0;
    std::int64_t there = 0;
  };

  explicit Rig(std::uint64_t seed, std::int64_t pages = 60, std::int64_t prefix_cache = 50)
      : rng(seed),
        pages_(pages),
        core({.epoch = WorkerEpoch(1),
              .pages = pages,
              .step = {.budget = 10ms, .max_batch_tokens = 64},
              .prefix_cache = prefix_cache}) {
    open(kStages);
  }

  void open(ModelId model) {
    LoadModel message = load(model);
    message.basis.version = core.report().version;
    tell(WorkerMessage{message});
    tell(ModelOpened{.model = model});
    if (model == kStages) {
      tell(PipeJoined{.model = kStages, .stage = 0});
      tell(PipeReady{.model = kStages, .followers = {{.kv = message.footprint.kv, .pages = 40}}});
    }
    there.insert(model);
  }
  void gather() { tell(WorkerMessage{Gather{.model = kStages, .into = kWhole}}); }
  void evict(ModelId model) {
    there.erase(model);
    tell(WorkerMessage{
        EvictModel{.model = model, .basis = {.epoch = WorkerEpoch(1)}, .mode = EvictMode::kNow}});
    for (const auto& [id, own] : engine) {
      EXPECT_NE(own.model, model);
    }
    if (model == kStages) {
      batches_.clear();
      pieces.clear();
    } else {
      EXPECT_TRUE(shadows.empty()) << "nothing comes to it any more";
      cached_.clear();
    }
    tell(ModelClosed{.model = model});
  }

  void ask(std::uint64_t id, std::int64_t prompt, std::int64_t most, std::uint32_t choices = 1) {
    Asked& request = requests[RequestId(id)];
    request = {.prompt = prompt, .most = most};
    for (std::uint32_t choice = 0; choice < choices; ++choice) {
      request.told[choice];
    }
    submit(RequestId(id));
  }
  /// To where the manager would send it, with what is known of it.
  void submit(RequestId id) {
    Asked& request = requests.at(id);
    const bool gathers = told_to_gather && there.contains(kWhole);
    request.at = gathers || !there.contains(kStages) ? kWhole : kStages;
    Submit message{.request = id, .model = request.at, .due = 10s};
    message.prompt.resize(static_cast<std::size_t>(request.prompt), 7);
    for (const auto& [choice, told] : request.told) {
      message.choices.emplace_back();
      message.choices.back().params.choice = choice;
      message.choices.back().params.max_tokens = request.most;
      message.choices.back().generated.resize(static_cast<std::size_t>(told), 5);
    }
    added_ = id;
    tell(WorkerMessage{message});
  }

  /// Whether a step was run.
  bool idle() {
    const std::size_t before = steps_;
    tell(EngineIdle{});
    return steps_ > before;
  }
  /// Runs steps, and lets come back what was away, until nothing is.
  void settle() {
    for (int round = 0; round < 2'000; ++round) {
      now += 1ms;
      const bool stepped = idle();
      if (!stepped && batches_.empty() && pieces.empty()) {
        return;
      }
      batch_back();
      piece_back(false);
    }
    FAIL() << "it does not settle";
  }

  /// So many steps, each of which comes back.
  void settle_some(int steps) {
    for (int i = 0; i < steps; ++i) {
      now += 1ms;
      (void)idle();
      batch_back();
    }
  }

  /// The batch that went first is back.
  void batch_back() {
    if (batches_.empty()) {
      return;
    }
    const std::vector<std::pair<SequenceId, Known>> batch = std::move(batches_.front());
    batches_.pop_front();
    PipeReturned returned{.model = kStages};
    for (const auto& [id, sent] : batch) {
      const auto found = engine.find(id);
      if (found != engine.end() && found->second.begun == sent.begun) {
        found->second.away = false;
        returned.slices.push_back(finish(id, found->second, sent.slice));
      }
    }
    returned.counted = counted();
    tell(returned);
  }
  void piece_back(bool refused) {
    if (pieces.empty()) {
      return;
    }
    const auto [id, piece] = pieces.front();
    pieces.pop_front();
    const auto found = shadows.find(id);
    if (found == shadows.end() || found->second.begun != piece.begun) {
      return;
    }
    found->second.there = piece.asked;
    tell(said_of(id, refused));
  }

  [[nodiscard]] KvGathered said_of(SequenceId id, bool failed) const {
    const Shadow& shadow = shadows.at(id);
    return {.sequence = id,
            .asked = shadow.asked,
            .there = shadow.there,
            .usable = shadow.there / kBlock * kBlock,
            .block_tokens = kBlock,
            .failed = failed,
            .counted = counted()};
  }

  [[nodiscard]] std::int64_t cached() const {
    std::int64_t sum = 0;
    for (const auto& [request, tokens] : cached_) {
      sum += pages_of(tokens);
    }
    return sum;
  }
  [[nodiscard]] KvCounted counted() const {
    std::map<ModelId, std::int64_t> held;
    for (const ModelId model : there) {
      held[model];
    }
    for (const auto& [id, own] : engine) {
      held[own.model] += own.pages();
    }
    for (const auto& [id, shadow] : shadows) {
      held[kWhole] += pages_of(shadow.asked);
    }
    KvCounted counted{.cached_pages = cached()};
    for (const auto& [model, pages] : held) {
      counted.kv.push_back({.model = model, .pages = pages});
    }
    return counted;
  }
  [[nodiscard]] std::int64_t free() const {
    std::int64_t left = pages_ - 1 - kImage * std::ssize(there) - cached();
    for (const KvHeld& held : counted().kv) {
      left -= held.pages;
    }
    return left;
  }
  /// Cached prefixes go where pages lack.
  bool make_room(std::int64_t need) {
    while (need > free() && !cached_.empty()) {
      cached_.erase(cached_.begin());
    }
    return need <= free();
  }

  void tell(const WorkerEvent& event) {
    std::deque<WorkerEvent> events{event};
    while (!events.empty() && !testing::Test::HasFatalFailure()) {
      std::vector<WorkerCommand> commands;
      core.step(now, events.front(), commands);
      core.check_invariants();
      events.pop_front();
      changed_ = false;
      for (const WorkerCommand& command : commands) {
        std::visit([&](const auto& concrete) { carry_out(concrete, events); }, command);
      }
      if (changed_) {
        events.emplace_back(counted());
      }
      for (const RequestId id : std::exchange(returned_, {})) {
        if (requests.contains(id)) {
          waiting.insert(id);
        }
      }
    }
  }

  Rng rng;
  std::int64_t pages_;
  WorkerCore core;
  Instant now{1s};
  bool told_to_gather = false;
  std::set<ModelId> there{};
  std::map<RequestId, Asked> requests{};
  std::set<RequestId> waiting{};  ///< Were given back, and wait to be submitted.
  std::map<SequenceId, Known> engine{};
  std::map<SequenceId, Shadow> shadows{};
  std::deque<std::pair<SequenceId, Shadow>> pieces{};  ///< That are away.
  std::vector<KvMoved> moved{};
  int ended = 0;

 private:
  template <class T>
  void carry_out(const T& /*command*/, std::deque<WorkerEvent>& /*events*/) {}

  void carry_out(const AddSequence& add, std::deque<WorkerEvent>& /*events*/) {
    engine[add.sequence] = {.request = added_,
                            .model = add.model,
                            .tokens = std::ssize(add.tokens),
                            .prompt = add.prompt_tokens,
                            .most = add.params.max_tokens,
                            .begun = ++lives_};
  }
  void carry_out(const RemoveSequence& remove, std::deque<WorkerEvent>& /*events*/) {
    HEDDLE_CHECK(engine.erase(remove.sequence) == 1);
    changed_ = true;
  }
  void carry_out(const PreemptSequence& preempt, std::deque<WorkerEvent>& /*events*/) {
    Known& own = engine.at(preempt.sequence);
    own.computed = 0;
    own.begun = ++lives_;
    own.away = false;
    changed_ = true;
  }
  void carry_out(const TakePrefixes& take, std::deque<WorkerEvent>& events) {
    PrefixesTaken taken;
    for (const SequenceId id : take.sequences) {
      Known& own = engine.at(id);
      const auto found = cached_.find(own.request);
      if (own.model == kWhole && found != cached_.end()) {
        own.computed = std::min(found->second, (own.tokens - 1) / kBlock * kBlock);
        cached_.erase(found);
      }
      taken.sequences.push_back({.sequence = id, .computed = own.computed});
    }
    events.emplace_back(taken);
    changed_ = true;
  }
  void carry_out(const TrimCached& trim, std::deque<WorkerEvent>& /*events*/) {
    while (cached() > trim.keep) {
      cached_.erase(cached_.begin());
    }
    changed_ = true;
  }
  void carry_out(const GatherKv& gather, std::deque<WorkerEvent>& events) {
    const Known& own = engine.at(gather.sequence);
    HEDDLE_CHECK(own.model == kStages && gather.into == kWhole && there.contains(kWhole));
    HEDDLE_CHECK(gather.tokens <= own.computed);
    Shadow& shadow =
        shadows.try_emplace(gather.sequence, Shadow{.request = own.request, .begun = ++lives_})
            .first->second;
    bool failed = false;
    while (shadow.asked < gather.tokens && away_of(gather.sequence) < 2 && !failed) {
      const std::int64_t end = std::min(shadow.asked + kPiece, gather.tokens);
      failed = !make_room(pages_of(end) - pages_of(shadow.asked));
      if (!failed) {
        shadow.asked = end;
        pieces.emplace_back(gather.sequence, shadow);
      }
    }
    events.emplace_back(said_of(gather.sequence, failed));
  }
  [[nodiscard]] std::int64_t away_of(SequenceId id) const {
    return std::ranges::count_if(pieces, [&](const auto& piece) {
      return piece.first == id && piece.second.begun == shadows.at(id).begun;
    });
  }
  void carry_out(const EndGather& end, std::deque<WorkerEvent>& /*events*/) {
    const auto found = shadows.find(end.sequence);
    if (found != shadows.end()) {
      if (found->second.there >= kBlock) {
        cached_[found->second.request] = found->second.there / kBlock * kBlock;
      }
      shadows.erase(found);
    }
    changed_ = true;
  }
  void carry_out(const RunStep& run, std::deque<WorkerEvent>& events) {
    ++steps_;
    StepDone done{.took = 1ms};
    std::vector<std::pair<SequenceId, Known>> batch;
    for (const policy::ModelBatch& planned : run.plan.batches) {
      for (const policy::StepSlice& slice : planned.slices) {
        Known& own = engine.at(slice.sequence);
        HEDDLE_CHECK(!own.away && own.computed + slice.tokens <= own.tokens);
        if (!make_room(pages_of(own.computed + slice.tokens) - own.pages())) {
          done.starved.push_back(slice.sequence);
        } else if (own.model == kStages) {
          own.away = true;
          own.slice = slice.tokens;
          done.in_pipe.push_back(slice.sequence);
          batch.emplace_back(slice.sequence, own);
        } else {
          done.slices.push_back(finish(slice.sequence, own, slice.tokens));
        }
      }
    }
    done.counted = counted();
    if (!batch.empty()) {
      batches_.push_back(std::move(batch));
    }
    events.emplace_back(done);
  }
  static SliceDone finish(SequenceId id, Known& own, std::int64_t tokens) {
    own.computed += tokens;
    SliceDone done{.sequence = id, .computed = own.computed};
    if (own.computed == own.tokens) {
      done.token = 5;
      done.position = own.tokens - own.prompt;
      ++own.tokens;
      done.finish = own.tokens - own.prompt == own.most ? spec::FinishReason::kLength
                                                        : spec::FinishReason::kNone;
    }
    return done;
  }
  void carry_out(const Report& said, std::deque<WorkerEvent>& events) {
    if (const auto* produced = std::get_if<TokensProduced>(&said.report)) {
      for (const TokenEvent& token : produced->tokens) {
        const auto found = requests.find(token.request);
        ASSERT_NE(found, requests.end()) << "a token of a request that has ended";
        std::int64_t& told = found->second.told.at(token.choice);
        ASSERT_EQ(token.position, told) << "no position twice, and none left out";
        ++told;
        if (token.finish != spec::FinishReason::kNone) {
          found->second.told.erase(token.choice);
        }
        if (found->second.told.empty()) {
          requests.erase(found);
          ++ended;
        }
      }
    } else if (const auto* failed = std::get_if<RequestFailed>(&said.report)) {
      ASSERT_EQ(failed->error.code, Code::kResourceExhausted) << failed->error.message;
      EXPECT_EQ(requests.erase(failed->request), 1U);
      ++ended;
    } else if (const auto* given_back = std::get_if<RequestReturned>(&said.report)) {
      returned_.insert(given_back->request);
    } else if (const auto* kv = std::get_if<KvMoved>(&said.report)) {
      moved.push_back(*kv);
    } else if (const auto* device = std::get_if<DeviceReport>(&said.report)) {
      if (device->pages_wanted > 0) {
        events.emplace_back(WorkerMessage{NoPages{.model = device->wanted_by}});
      }
    }
  }

  RequestId added_{};                           ///< The last one submitted.
  std::map<RequestId, std::int64_t> cached_{};  ///< Tokens, in the whole model.
  std::set<RequestId> returned_{};
  std::deque<std::vector<std::pair<SequenceId, Known>>> batches_{};  ///< That are away.
  std::uint64_t lives_ = 0;
  std::size_t steps_ = 0;
  bool changed_ = false;
};

}  // namespace heddle::core::test
