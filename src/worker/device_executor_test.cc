#include "worker/device_executor.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/test_places.h"
#include "engine/test_host.h"
#include "store/test_adapter.h"

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
            .on_report =
                [this](core::WorkerReport report) {
                  const std::lock_guard lock(mutex_);
                  if (auto* returned = std::get_if<core::PagesReturned>(&report)) {
                    returned_ = std::move(returned->pages);
                    changed_.notify_all();
                  }
                }};
  }
  /// Waits for the pages that come with the next PagesReturned.
  std::vector<PageId> returned() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !returned_.empty(); });
    return std::exchange(returned_, {});
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
  /// Waits until the model is open, or closed, whatever else there is to hear of copies.
  void wait_opened(ModelId model) { wait_for<core::ModelOpened>(model); }
  void wait_closed(ModelId model) { wait_for<core::ModelClosed>(model); }

 private:
  template <class E>
  void wait_for(ModelId model) {
    std::unique_lock lock(mutex_);
    const auto is_it = [&](const core::WorkerEvent& event) {
      const auto* found = std::get_if<E>(&event);
      return found != nullptr && found->model == model;
    };
    changed_.wait(lock, [&] { return std::ranges::any_of(events_, is_it); });
    std::erase_if(events_, [&](const core::WorkerEvent& event) {
      return is_it(event) || std::holds_alternative<core::CopyProgress>(event);
    });
  }

  std::mutex mutex_{};
  std::condition_variable changed_{};
  std::vector<core::WorkerEvent> events_{};
  std::vector<core::SequenceId> compiled_{};
  std::vector<PageId> returned_{};
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
    DeviceExecutor::Handlers handlers = heard_.handlers();
    handlers.has_news = [this] { return has_news_; };
    executor_ = DeviceExecutor::create(host_.device(),
                                       {.pages = pool_, .max_batch_tokens = 64, .pace = pace},
                                       std::move(handlers))
                    .value();
  }

  void open(ModelId id,
            const std::string& golden,
            bool complete = true,
            const std::vector<spec::AdapterSource>& adapters = {}) {
    const auto directory = engine::golden_directory() / golden;
    engine::LoadedModel model = host_.load(directory, spec::DType::kF32);
    model.spec.adapter_rank = adapters.empty() ? 0 : 8;
    executor_->describe({.model = id,
                         .name = golden,
                         .spec = model.spec,
                         .dtype = spec::DType::kF32,
                         .directory = directory,
                         .adapters = adapters});
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
    return run_prompt(model, sequence);
  }
  std::vector<core::WorkerEvent> run_prompt(ModelId model, core::SequenceId sequence) {
    return carry_out(core::RunStep{
        .plan = {
            .batches = {{.model = model, .slices = {{.sequence = sequence, .tokens = kPrompt}}}}}});
  }

  engine::TestHost host_{};
  std::vector<PageId> pool_{};
  bool has_news_ = false;
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
  open(kFirst, places::source("models/adder"));
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
  open(kFirst, places::source("models/adder"));
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

TEST_F(DeviceExecutorTest, ASequenceWaitsForItsAdapterThenForItsGrammar) {
  const store::TempDirectory directory;
  Rng rng(3);
  store::random_adapter(
      store::all_tensors(store::TensorSet::open(places::source("models/adder")).value()), rng)
      .write(directory.path());
  open(kFirst,
       places::source("models/adder"),
       /*complete=*/true,
       {{.name = "fine", .directory = directory.path()}, {.name = "lost", .directory = "/no"}});
  core::AddSequence both = constrained(core::SequenceId(1), "[0-9]+");
  both.adapter = "fine";
  EXPECT_TRUE(carry_out(both).empty()) << "its files are opened";
  EXPECT_EQ(heard_.next_compiled(), core::SequenceId(1));
  EXPECT_TRUE(finish_add(core::SequenceId(1)).empty()) << "its grammar is compiled";
  EXPECT_EQ(heard_.next_compiled(), core::SequenceId(1));
  const auto ready = finish_add(core::SequenceId(1));
  ASSERT_EQ(ready.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<core::SequenceReady>(ready[0]));
  const auto step = carry_out(core::RunStep{
      .plan = {.batches = {{.model = kFirst,
                            .slices = {{.sequence = core::SequenceId(1), .tokens = 3}}}}}});
  EXPECT_TRUE(std::get<core::StepDone>(step.at(0)).slices.at(0).token.has_value());
  const rpc::WorkerStats stats = executor_->stats();
  ASSERT_EQ(stats.adapters.size(), 1U);
  EXPECT_EQ(stats.adapters[0].name, "fine");
  EXPECT_EQ(stats.adapters[0].sequences, 1);

  core::AddSequence plain{.sequence = core::SequenceId(2),
                          .model = kFirst,
                          .tokens = {1, 2},
                          .prompt_tokens = 2,
                          .params = {.max_tokens = 1},
                          .adapter = "fine"};
  const auto at_once = carry_out(plain);
  ASSERT_EQ(at_once.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<core::SequenceReady>(at_once[0])) << "the files are open";
  plain.sequence = core::SequenceId(3);
  plain.adapter = "lost";
  EXPECT_TRUE(carry_out(plain).empty());
  EXPECT_EQ(heard_.next_compiled(), core::SequenceId(3));
  EXPECT_TRUE(std::holds_alternative<core::SequenceRefused>(finish_add(core::SequenceId(3)).at(0)));
  plain.sequence = core::SequenceId(4);
  plain.adapter = "unknown";
  EXPECT_EQ(std::get<core::SequenceRefused>(carry_out(plain).at(0)).error.code, Code::kNotFound);
}

/// A host and its worker in small: images are read, exchanged for free pages, copied and dropped,
/// in any order, while windows stay mapped. The host scribbles over what is free.
class SwitchingTest : public DeviceExecutorTest {
 protected:
  struct Model {
    ModelId id{};
    engine::Golden golden{};
    store::ImageLayout layout{};
    std::vector<std::byte> image{};  ///< As it was read.
    std::vector<PageId> pages{};     ///< Empty: the host does not have it.
    std::optional<core::ImageSource> open{};
  };

  void add(ModelId id, const std::string& name) {
    const auto directory = engine::golden_directory() / name;
    engine::LoadedModel loaded = host_.load(directory, spec::DType::kF32);
    executor_->describe({.model = id,
                         .name = name,
                         .spec = loaded.spec,
                         .dtype = spec::DType::kF32,
                         .directory = directory});
    Model& model = models_.emplace_back();
    model = {.id = id,
             .golden = engine::read_golden(name),
             .layout = std::move(loaded.layout),
             .pages = std::move(loaded.pages)};
    for (const PageId page : model.pages) {
      const std::byte* const at = host_.device().page_address(page);
      model.image.insert(model.image.end(), at, at + page_bytes());
    }
  }

  void load(Model& model, core::ImageSource source) {
    if (source == core::ImageSource::kGiven) {
      (void)carry_out(core::SurrenderPages{.model = model.id,
                                           .count = static_cast<std::int64_t>(model.pages.size())});
      for (const PageId page : heard_.returned()) {
        free_.push_back(page);
      }
    }
    EXPECT_TRUE(carry_out(core::OpenModel{.model = model.id,
                                          .source = source,
                                          .pages = model.pages,
                                          .image_bytes = model.layout.bytes,
                                          .ready_bytes = model.layout.bytes})
                    .empty());
    model.open = source;
    heard_.wait_opened(model.id);
    // The core says so; of a copy the mapper has told the engine itself.
    if (source == core::ImageSource::kGiven) {
      (void)carry_out(core::SetImageReady{.model = model.id, .bytes = model.layout.bytes});
    }
  }

  void answer(Model& model) {
    const core::SequenceId sequence(++sequences_);
    for (const core::WorkerEvent& event : prefill(model.id, sequence, model.golden)) {
      const auto* done = std::get_if<core::StepDone>(&event);
      ASSERT_TRUE(done != nullptr && done->slices.size() == 1);
      ASSERT_EQ(done->slices[0].token, model.golden.greedy[0]) << "model " << model.id.value();
    }
    (void)carry_out(core::RemoveSequence{.sequence = sequence});
  }

  void evict(Model& model) {
    const bool exchange = *model.open == core::ImageSource::kGiven && rng_.below(4) > 0;
    if (exchange) {
      (void)carry_out(core::AdoptPages{.pages = take_free(model.pages.size())});
    }
    (void)carry_out(
        core::CloseModel{.model = model.id,
                         .image = exchange ? core::ImagePages::kLeave : core::ImagePages::kToPool});
    heard_.wait_closed(model.id);
    executor_->finish_close(model.id);
    if (*model.open == core::ImageSource::kGiven && !exchange) {
      model.pages.clear();  // They are free pages of the device now.
    }
    model.open.reset();
  }

  void drop(Model& model) {
    free_.insert(free_.end(), model.pages.begin(), model.pages.end());
    model.pages.clear();
    (void)carry_out(core::LetGoWindow{.model = model.id});
  }

  /// Into any pages.
  void read(Model& model) {
    const std::size_t count = model.image.size() / page_bytes();
    if (free_.size() < count) {
      (void)carry_out(core::SurrenderPages{.count = static_cast<std::int64_t>(count)});
      const std::vector<PageId> more = heard_.returned();
      free_.insert(free_.end(), more.begin(), more.end());
    }
    model.pages = take_free(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(host_.device().page_address(model.pages[i]),
                  model.image.data() + i * page_bytes(),
                  page_bytes());
    }
  }

  void scribble() {
    for (const PageId page : free_) {
      std::memset(
          host_.device().page_address(page), static_cast<int>(rng_.below(256)), page_bytes());
    }
  }

  /// No image has been written to.
  void check_images() {
    for (const Model& model : models_) {
      for (std::size_t i = 0; i < model.pages.size(); ++i) {
        ASSERT_EQ(std::memcmp(host_.device().page_address(model.pages[i]),
                              model.image.data() + i * page_bytes(),
                              page_bytes()),
                  0)
            << "model " << model.id.value() << ", page " << i;
      }
    }
  }

  std::vector<PageId> take_free(std::size_t count) {
    std::vector<PageId> taken;
    while (taken.size() < count) {
      std::swap(free_.at(rng_.below(free_.size())), free_.back());
      taken.push_back(free_.back());
      free_.pop_back();
    }
    return taken;
  }
  [[nodiscard]] std::size_t page_bytes() { return host_.device().properties().page_bytes; }

  Rng rng_{1};
  std::vector<Model> models_{};
  std::vector<PageId> free_{};  ///< At the host.
  std::uint64_t sequences_ = 0;
};

TEST_F(SwitchingTest, ModelsComeAndGoInAnyOrderAndAnswerAsEver) {
  add(kFirst, "qwen3-window");
  add(kSecond, "llama-mha-f32");
  add(ModelId(3), "mistral-plain");
  bool kept = false;
  for (int step = 0; step < 600 && !HasFatalFailure(); ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    Model& model = models_[rng_.below(models_.size())];
    if (model.open) {
      answer(model);
      if (rng_.below(3) > 0) {
        evict(model);
      }
    } else if (!model.pages.empty() && rng_.below(5) == 0) {
      drop(model);
    } else {
      if (model.pages.empty()) {
        read(model);
      }
      load(model, rng_.below(4) == 0 ? core::ImageSource::kShared : core::ImageSource::kGiven);
      answer(model);
    }
    kept = kept || executor_->stats().kept_bytes > 0;
    scribble();
    check_images();
  }
  EXPECT_TRUE(kept);
}

TEST_F(DeviceExecutorTest, AStepThatWaitsForWeightsMakesWay) {
  const engine::Golden golden = engine::read_golden("qwen3-window");
  open(kFirst, "qwen3-window", false);
  has_news_ = true;
  const auto gave_up = prefill(kFirst, core::SequenceId(1), golden);
  const auto& nothing = std::get<core::StepDone>(gave_up.at(0));
  EXPECT_TRUE(nothing.slices.empty());
  EXPECT_TRUE(nothing.unready.empty()) << "or the core would take the model for one that goes";

  has_news_ = false;
  const std::uint64_t image_bytes =
      host_.load(engine::golden_directory() / "qwen3-window", spec::DType::kF32).layout.bytes;
  executor_->hear_early(core::ImageProgress{.model = kFirst, .bytes = image_bytes});
  const auto ran = run_prompt(kFirst, core::SequenceId(1));
  EXPECT_EQ(std::get<core::StepDone>(ran.at(0)).slices.size(), 1U);
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
