#include "worker/device_executor.h"

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/test_host.h"

namespace heddle::worker {
namespace {

constexpr ModelId kFirst{1};
constexpr ModelId kSecond{2};
constexpr std::int64_t kPrompt = 16;

/// What came to its end in the mapper's thread.
class Heard {
 public:
  DeviceExecutor::Handlers handlers() {
    return {.on_event =
                [this](core::WorkerEvent event) {
                  const std::lock_guard lock(mutex_);
                  events_.push_back(std::move(event));
                  changed_.notify_all();
                },
            .on_compiled =
                [this](core::SequenceId sequence) {
                  const std::lock_guard lock(mutex_);
                  compiled_.push_back(sequence);
                  changed_.notify_all();
                },
            .on_report = [](core::WorkerReport /*report*/) {}};
  }
  /// Waits for the next sequence whose grammar is compiled.
  core::SequenceId next_compiled() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !compiled_.empty(); });
    const core::SequenceId sequence = compiled_.front();
    compiled_.erase(compiled_.begin());
    return sequence;
  }
  /// Waits for the next event, which is to be an E.
  template <class E>
  E next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !events_.empty(); });
    core::WorkerEvent event = std::move(events_.front());
    events_.erase(events_.begin());
    HEDDLE_CHECK(std::holds_alternative<E>(event));
    return std::get<E>(std::move(event));
  }

 private:
  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::vector<core::WorkerEvent> events_{};
  std::vector<core::SequenceId> compiled_{};
};

/// A device of which half the pages are the executor's pool; the images lie in the other half.
class DeviceExecutorTest : public testing::Test {
 protected:
  DeviceExecutorTest() { create({}); }

  void create(rpc::Pace pace) {
    executor_.reset();
    if (pool_.empty()) {
      pool_ = host_.pool().take(memory::OwnerId(9), 64).value();
    }
    executor_ = DeviceExecutor::create(host_.device(),
                                       {.pages = pool_, .max_batch_tokens = 64, .pace = pace},
                                       heard_.handlers())
                    .value();
  }

  void open(ModelId id, const std::string& golden, bool complete = true) {
    const auto directory = engine::golden_directory() / golden;
    const engine::LoadedModel model = host_.load(directory, spec::DType::kF32);
    executor_->describe({.model = id,
                         .name = golden,
                         .spec = model.spec,
                         .dtype = spec::DType::kF32,
                         .directory = directory});
    EXPECT_TRUE(carry_out(core::OpenModel{.model = id,
                                          .pages = model.pages,
                                          .image_bytes = model.layout.bytes,
                                          .ready_bytes = complete ? model.layout.bytes : 0})
                    .empty());
    EXPECT_EQ(heard_.next<core::ModelOpened>().model, id);
  }

  std::vector<core::WorkerEvent> carry_out(core::WorkerCommand command) {
    std::vector<core::WorkerEvent> events;
    const Result<void> done = executor_->carry_out(std::move(command), events);
    EXPECT_TRUE(done.has_value());
    return events;
  }

  /// A sequence of the model that the demo serves, which has a tokenizer.
  core::AddSequence constrained(core::SequenceId sequence, const std::string& grammar) {
    return {.sequence = sequence,
            .model = kFirst,
            .tokens = {1, 2, 3},
            .prompt_tokens = 3,
            .params = {.temperature = 0,
                       .max_tokens = 4,
                       .grammar = {.kind = spec::GrammarKind::kRegex, .text = grammar}}};
  }
  std::vector<core::WorkerEvent> finish_add(core::SequenceId sequence) {
    std::vector<core::WorkerEvent> events;
    executor_->finish_add(sequence, events);
    return events;
  }

  /// Has a new sequence's prompt read.
  std::vector<core::WorkerEvent> prefill(ModelId model,
                                         core::SequenceId sequence,
                                         const engine::Golden& golden) {
    EXPECT_TRUE(carry_out(core::AddSequence{.sequence = sequence,
                                            .model = model,
                                            .tokens = {golden.input_ids.begin(),
                                                       golden.input_ids.begin() + kPrompt},
                                            .prompt_tokens = kPrompt,
                                            .params = {.temperature = 0, .max_tokens = 1}})
                    .empty());
    return carry_out(core::RunStep{
        .plan = {
            .batches = {{.model = model, .slices = {{.sequence = sequence, .tokens = kPrompt}}}}}});
  }

  engine::TestHost host_{};
  std::vector<PageId> pool_{};
  Heard heard_{};
  std::unique_ptr<DeviceExecutor> executor_{};
};

TEST_F(DeviceExecutorTest, RunsOneModelWhileAnotherIsBeingClosed) {
  open(kFirst, "llama-mha-f32");
  open(kSecond, "qwen3-window");
  const engine::Golden golden = engine::read_golden("qwen3-window");
  // The mapper may take its time: the step comes before anybody has heard of the end.
  (void)carry_out(core::CloseModel{.model = kFirst, .image = core::ImagePages::kLeave});
  const auto events = prefill(kSecond, core::SequenceId(1), golden);
  ASSERT_EQ(events.size(), 1U);
  const auto& done = std::get<core::StepDone>(events[0]);
  ASSERT_EQ(done.slices.size(), 1U);
  EXPECT_EQ(done.slices[0].token, golden.greedy[0]);
  ASSERT_EQ(done.counted.kv.size(), 1U) << "the KV of open models";
  EXPECT_EQ(done.counted.kv[0].model, kSecond);

  EXPECT_EQ(heard_.next<core::ModelClosed>().model, kFirst);
  executor_->finish_close(kFirst);
}

TEST_F(DeviceExecutorTest, OthersStepWhileAGrammarIsCompiled) {
  open(kFirst, HEDDLE_SOURCE_DIR "/models/adder");
  open(kSecond, "qwen3-window");
  const core::SequenceId constrained_one(1);
  EXPECT_TRUE(carry_out(constrained(constrained_one, "[0-9]+")).empty()) << "it is under way";
  const auto step = prefill(kSecond, core::SequenceId(2), engine::read_golden("qwen3-window"));
  ASSERT_EQ(step.size(), 1U);
  EXPECT_EQ(std::get<core::StepDone>(step[0]).slices.size(), 1U);

  EXPECT_EQ(heard_.next_compiled(), constrained_one);
  const auto ready = finish_add(constrained_one);
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_EQ(std::get<core::SequenceReady>(ready[0]).sequence, constrained_one);
  EXPECT_TRUE(finish_add(constrained_one).empty()) << "once";
  const auto own = carry_out(core::RunStep{
      .plan = {
          .batches = {{.model = kFirst, .slices = {{.sequence = constrained_one, .tokens = 3}}}}}});
  EXPECT_TRUE(std::get<core::StepDone>(own.at(0)).slices.at(0).token.has_value());

  const auto again = carry_out(constrained(core::SequenceId(3), "[0-9]+"));
  ASSERT_EQ(again.size(), 1U) << "an equal one is there at once";
  EXPECT_TRUE(std::holds_alternative<core::SequenceReady>(again[0]));
}

TEST_F(DeviceExecutorTest, ASequenceMayEndBeforeItsGrammarIsCompiled) {
  open(kFirst, HEDDLE_SOURCE_DIR "/models/adder");
  EXPECT_TRUE(carry_out(constrained(core::SequenceId(1), "[0-9]+")).empty());
  EXPECT_TRUE(carry_out(core::RemoveSequence{.sequence = core::SequenceId(1)}).empty());
  EXPECT_TRUE(carry_out(constrained(core::SequenceId(2), "(")).empty());
  while (heard_.next_compiled() != core::SequenceId(2)) {
    EXPECT_TRUE(finish_add(core::SequenceId(1)).empty()) << "the engine never had it";
  }
  const auto refused = finish_add(core::SequenceId(2));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(std::get<core::SequenceRefused>(refused[0]).error.code, Code::kInvalidArgument);
}

TEST_F(DeviceExecutorTest, KeepsItsPaceAndCountsTheStepsThatDoNot) {
  const engine::Golden golden = engine::read_golden("qwen3-window");
  const rpc::Pace pace{.step = std::chrono::milliseconds(4), .token = std::chrono::milliseconds(1)};
  create(pace);
  open(kFirst, "qwen3-window");
  const auto events = prefill(kFirst, core::SequenceId(1), golden);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_GE(std::get<core::StepDone>(events[0]).took, pace.step + pace.token * kPrompt);
  EXPECT_EQ(executor_->stats().steps, 1U);

  create({.step = Duration(20)});  // No step is as quick as that.
  open(kFirst, "qwen3-window");
  (void)prefill(kFirst, core::SequenceId(1), golden);
  EXPECT_EQ(executor_->stats().steps, 1U);
  EXPECT_EQ(executor_->stats().late_steps, 1U);
  EXPECT_EQ(executor_->stats().slow_steps, 1U);
  EXPECT_EQ(executor_->stats().overrun_steps, 1U);

  create({.step = Duration(20)});  // Without weights it is not the machine's fault.
  open(kFirst, "qwen3-window", false);
  executor_->hear_early(
      core::EvictModel{.model = kFirst, .mode = core::EvictMode::kNow});  // Or it would wait on.
  const auto unready = prefill(kFirst, core::SequenceId(1), golden);
  EXPECT_EQ(std::get<core::StepDone>(unready.at(0)).unready.size(), 1U);
  EXPECT_EQ(executor_->stats().steps, 1U);
  EXPECT_EQ(executor_->stats().late_steps, 0U);
  EXPECT_EQ(executor_->stats().slow_steps, 0U);
  EXPECT_EQ(executor_->stats().overrun_steps, 0U);

  create({});  // Without a pace nothing is late.
  open(kFirst, "qwen3-window");
  (void)prefill(kFirst, core::SequenceId(1), golden);
  EXPECT_EQ(executor_->stats().late_steps, 0U);
}

}  // namespace
}  // namespace heddle::worker
