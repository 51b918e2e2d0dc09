// Models some of whose layers keep a state: what a state must survive. That tokens do not depend on
// the schedule is for invariance_test.cc, and what the layers compute for golden_test.cc.

#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/test_host.h"
#include "ops/cpu/kernels.h"
#include "ops/wait.h"

namespace heddle::engine {
namespace {

constexpr ModelId kHybrid{3};

/// Gives up where it would wait, as a wait does whose image is paused meanwhile.
void never_wait(device::Stream& stream, const ops::WaitArgs& args) {
  ops::cpu::cpu_stream(stream).enqueue([args](device::ThreadPool&) -> Result<void> {
    if (args.watermark->load() >= args.value) {
      return {};
    }
    return Error{Code::kCancelled, "paused"};
  });
}

class DecoderStatesTest : public testing::Test {
 protected:
  DecoderStatesTest() {
    kernels_.wait = never_wait;
    engine_ = make_engine({.kernels = &kernels_});
  }

  std::unique_ptr<Engine> make_engine(const EngineOptions& options) {
    auto engine = Engine::create(host_.device(), host_.pool(), options).value();
    HEDDLE_CHECK(
        engine->add_model(kHybrid, model_.spec, model_.layout, model_.window.base(), kKvLease)
            .has_value());
    return engine;
  }

  [[nodiscard]] SequenceStart start(std::uint64_t id, std::int64_t prompt = 20) const {
    return {.id = SequenceId{id},
            .model = kHybrid,
            .tokens = {golden_.input_ids.begin(), golden_.input_ids.begin() + prompt},
            .prompt_tokens = prompt,
            .params = {.temperature = 0.0F, .max_tokens = 6, .logprobs = 3}};
  }

  static StepOutcome step(Engine& engine, std::uint64_t id, std::int64_t tokens) {
    return engine
        .run({.batches = {{.model = kHybrid,
                           .slices = {{.sequence = SequenceId{id}, .tokens = tokens}}}}})
        .value();
  }
  StepOutcome step(std::uint64_t id, std::int64_t tokens) { return step(*engine_, id, tokens); }

  using Told = std::vector<std::vector<spec::TokenLogprob>>;

  /// What is told of all tokens that a sequence generates, of which `pending` are to be computed.
  static Told tell(Engine& engine, std::uint64_t id, std::int64_t pending) {
    Told told;
    for (auto finish = spec::FinishReason::kNone; finish == spec::FinishReason::kNone;) {
      const StepOutcome outcome = step(engine, id, pending);
      HEDDLE_CHECK(outcome.results.size() == 1);
      told.push_back(outcome.results[0].details.logprobs);
      finish = outcome.results[0].finish;
      pending = 1;
    }
    engine.remove_sequence(SequenceId{id});
    return told;
  }

  /// What an engine tells whose image is there from the start.
  Told expected() {
    const auto engine = make_engine({});
    engine->set_image_ready(kHybrid, model_.layout.bytes);
    HEDDLE_CHECK(engine->add_sequence(start(1)).has_value());
    return tell(*engine, 1, 20);
  }

  /// The image is there up to the end of that stage.
  void load_to(std::int64_t stage) {
    engine_->set_image_ready(kHybrid, model_.layout.stage_end[static_cast<std::size_t>(stage)]);
  }

  TestHost host_{};
  Golden golden_ = read_golden("qwen3-5-f32");
  LoadedModel model_ = host_.load(golden_directory() / "qwen3-5-f32", spec::DType::kF32);
  ops::KernelTable kernels_ = ops::cpu::cpu_kernels();
  std::unique_ptr<Engine> engine_;
};

TEST_F(DecoderStatesTest, APassThatGivesUpAtTheHeadHasTakenNoTokenTwice) {
  const Told whole = expected();
  load_to(model_.spec.layers);  // All but the head.
  ASSERT_TRUE(engine_->add_sequence(start(1)));
  EXPECT_EQ(step(1, 12).results.size(), 1U) << "what samples nothing needs no head";
  EXPECT_EQ(step(1, 8).unready, std::vector{SequenceId{1}});
  EXPECT_EQ(step(1, 8).unready, std::vector{SequenceId{1}});
  load_to(model_.spec.layers + 1);
  EXPECT_EQ(tell(*engine_, 1, 8), whole);
}

TEST_F(DecoderStatesTest, APassThatGivesUpWithinTheLayersBeginsAnew) {
  const Told whole = expected();
  ASSERT_TRUE(engine_->add_sequence(start(1)));
  for (std::int64_t stage = 0; stage <= model_.spec.layers; ++stage) {
    load_to(stage);
    EXPECT_EQ(step(1, 20).unready, std::vector{SequenceId{1}});
  }
  load_to(model_.spec.layers + 1);
  EXPECT_EQ(tell(*engine_, 1, 20), whole);
}

TEST_F(DecoderStatesTest, NoPrefixIsKeptOrFound) {
  load_to(model_.spec.layers + 1);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    ASSERT_TRUE(engine_->add_sequence(start(id, 70)));
    EXPECT_EQ(engine_->take_prefix(SequenceId{id}), 0);
    (void)tell(*engine_, id, 70);
    EXPECT_EQ(engine_->cached_pages(), 0);
  }
  EXPECT_TRUE(engine_->prefix_counts().empty());
}

TEST_F(DecoderStatesTest, AStateHasPagesFromTheFirstTokenToTheLast) {
  load_to(model_.spec.layers + 1);
  const std::int64_t free = host_.pool().free_count();
  ASSERT_TRUE(engine_->add_sequence(start(1, 2)));
  EXPECT_EQ(engine_->kv_pages(kHybrid), 0);
  (void)step(1, 1);
  const std::int64_t first = engine_->kv_pages(kHybrid);
  EXPECT_EQ(first, 2) << "a block of keys and values, and one of the state";
  EXPECT_EQ(engine_->kv_pages_for(kHybrid, 1), 2);
  EXPECT_EQ(host_.pool().free_count(), free - first);
  engine_->preempt(SequenceId{1});
  EXPECT_EQ(host_.pool().free_count(), free);
  engine_->remove_sequence(SequenceId{1});
}

TEST_F(DecoderStatesTest, AStateThatFindsNoPageStarvesItsSequence) {
  load_to(model_.spec.layers + 1);
  ASSERT_TRUE(engine_->add_sequence(start(1)));
  const auto hoard = host_.pool().take(kWeightsLease, host_.pool().free_count() - 1).value();
  EXPECT_EQ(step(1, 20).starved, std::vector{SequenceId{1}});
  EXPECT_EQ(engine_->kv_pages(kHybrid), 0) << "of the two pages that it needs it holds none";
  host_.pool().put(kWeightsLease, hoard);
  EXPECT_EQ(step(1, 20).results.size(), 1U);
}

}  // namespace
}  // namespace heddle::engine
