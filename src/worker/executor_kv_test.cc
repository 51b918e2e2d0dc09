// Two workers of which one fetches KV that the other has computed.

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test_host.h"
#include "worker/device_executor.h"

namespace heddle::worker {
namespace {

constexpr ModelId kModel{1};
constexpr const char* kGolden = "llama-mha-f32";
constexpr std::int64_t kPrompt = 40;

/// A worker's executor with the model open; what it asks others for lies in `asks`.
class KvWorker {
 public:
  KvWorker()
      : executor_(DeviceExecutor::create(
                      host_.device(),
                      {.pages = host_.pool().take(memory::OwnerId(9), 64).value(),
                       .max_batch_tokens = 64,
                       .prefix_cache = true},
                      {.on_event = [this](core::WorkerEvent event) { note(std::move(event)); },
                       .on_compiled = [](core::SequenceId) {},
                       .on_report = [](const core::WorkerReport&) {},
                       .on_kv_ask = [this](rpc::KvAsk ask) { asks.push_back(std::move(ask)); }})
                      .value()) {
    const auto directory = engine::golden_directory() / kGolden;
    const engine::LoadedModel model = host_.load(directory, spec::DType::kF32);
    executor_->describe({.model = kModel,
                         .name = kGolden,
                         .spec = model.spec,
                         .dtype = spec::DType::kF32,
                         .directory = directory});
    (void)carry_out(core::OpenModel{.model = kModel,
                                    .pages = model.pages,
                                    .image_bytes = model.layout.bytes,
                                    .ready_bytes = model.layout.bytes});
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
  }

  std::vector<core::WorkerEvent> carry_out(core::WorkerCommand command) {
    std::vector<core::WorkerEvent> events;
    EXPECT_TRUE(executor_->carry_out(std::move(command), events).has_value());
    return events;
  }
  void add(core::SequenceId sequence) {
    const engine::Golden golden = engine::read_golden(kGolden);
    EXPECT_TRUE(carry_out(core::AddSequence{.sequence = sequence,
                                            .model = kModel,
                                            .tokens = {golden.input_ids.begin(),
                                                       golden.input_ids.begin() + kPrompt},
                                            .prompt_tokens = kPrompt,
                                            .params = {.temperature = 0, .max_tokens = 1}})
                    .empty());
  }
  /// The token that follows, where so many positions are still to be computed.
  std::optional<TokenId> run(core::SequenceId sequence, std::int64_t tokens) {
    const auto events = carry_out(core::RunStep{
        .plan = {
            .batches = {{.model = kModel, .slices = {{.sequence = sequence, .tokens = tokens}}}}}});
    return std::get<core::StepDone>(events.at(0)).slices.at(0).token;
  }
  std::vector<core::WorkerEvent> hear(rpc::KvGiven given) {
    std::vector<core::WorkerEvent> events;
    EXPECT_TRUE(executor_->hear_kv(std::move(given), events).has_value());
    return events;
  }
  DeviceExecutor& executor() { return *executor_; }

  std::deque<rpc::KvAsk> asks{};

 private:
  /// In the mapper's thread.
  void note(const core::WorkerEvent& event) {
    const std::lock_guard lock(mutex_);
    open_ = open_ || std::holds_alternative<core::ModelOpened>(event);
    opened_.notify_all();
  }

  std::mutex mutex_{};
  std::condition_variable opened_{};
  bool open_ = false;  // Guarded by mutex_.
  engine::TestHost host_{};
  std::unique_ptr<DeviceExecutor> executor_;
};

/// One has computed a sequence, and forgotten it. The other has the same one.
struct ExecutorKv : testing::Test {
  ExecutorKv() {
    one.add(core::SequenceId(1));
    token = one.run(core::SequenceId(1), kPrompt);
    (void)one.carry_out(core::RemoveSequence{.sequence = core::SequenceId(1)});
    other.add(kHere);
  }
  [[nodiscard]] static core::FetchKv fetch(std::size_t sources = 1) {
    core::FetchKv fetch{.sequence = kHere};
    fetch.from.resize(sources, {.device = DeviceId(7), .model = kModel});
    return fetch;
  }

  static constexpr core::SequenceId kHere{5};
  KvWorker one{};
  KvWorker other{};
  std::optional<TokenId> token{};
};

TEST_F(ExecutorKv, ASequenceGoesOnWithWhatAnotherWorkerGives) {
  EXPECT_TRUE(other.carry_out(fetch()).empty()) << "it waits for the answer";
  ASSERT_EQ(other.asks.size(), 1U);
  EXPECT_EQ(other.asks[0].from.device, DeviceId(7));
  EXPECT_EQ(other.asks[0].tokens.size(), static_cast<std::size_t>(kPrompt - 1));
  const auto given = one.executor().give_kv(other.asks[0]);
  ASSERT_TRUE(given);
  const auto events = other.hear(*given);
  ASSERT_EQ(events.size(), 1U);
  const auto& fetched = std::get<core::KvFetched>(events[0]);
  EXPECT_EQ(fetched.sequence, kHere);
  EXPECT_GT(fetched.computed, 0);
  EXPECT_TRUE(fetched.done);
  ASSERT_EQ(fetched.counted.kv.size(), 1U);
  EXPECT_GT(fetched.counted.kv[0].pages, 0) << "it has pages now";
  EXPECT_EQ(other.run(kHere, kPrompt - fetched.computed), token);
}

TEST_F(ExecutorKv, AllSourcesAnswerBeforeAnythingIsPutIn) {
  (void)other.carry_out(fetch(2));
  ASSERT_EQ(other.asks.size(), 2U);
  EXPECT_TRUE(other.hear({.ask = other.asks[1].ask}).empty());
  const auto events = other.hear({.ask = other.asks[0].ask});
  ASSERT_EQ(events.size(), 1U);
  const auto& fetched = std::get<core::KvFetched>(events[0]);
  EXPECT_TRUE(fetched.done) << "nobody has any";
  EXPECT_EQ(fetched.computed, 0);
  EXPECT_EQ(other.run(kHere, kPrompt), token);
}

TEST_F(ExecutorKv, WhatIsLateIsForNobody) {
  (void)other.carry_out(fetch());
  const rpc::KvGiven given = *one.executor().give_kv(other.asks[0]);
  EXPECT_TRUE(other.hear({.ask = 99}).empty());
  (void)other.carry_out(core::EndFetch{.sequence = kHere});
  EXPECT_TRUE(other.hear(given).empty()) << "it waits no more";

  (void)other.carry_out(fetch());
  (void)other.carry_out(core::PreemptSequence{.sequence = kHere});
  rpc::KvGiven second = given;
  second.ask = other.asks[1].ask;
  EXPECT_TRUE(other.hear(second).empty()) << "it begins anew";

  (void)other.carry_out(fetch());
  (void)other.carry_out(core::RemoveSequence{.sequence = kHere});
  second.ask = other.asks[2].ask;
  EXPECT_TRUE(other.hear(second).empty()) << "it has gone";
}

TEST_F(ExecutorKv, WithoutSourcesThereIsNothing) {
  const auto events = other.carry_out(core::FetchKv{.sequence = kHere});
  ASSERT_EQ(events.size(), 1U);
  EXPECT_TRUE(std::get<core::KvFetched>(events[0]).done);
  EXPECT_TRUE(other.asks.empty());
}

}  // namespace
}  // namespace heddle::worker
