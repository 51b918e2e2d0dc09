// Steps that are enqueued before they are asked for, on the emulated driver, which runs work as
// late as a GPU's may: whoever looks at something too early, or has it changed too early, shows.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda_emulator/emulated_driver.h"
#include "engine/engine.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr ModelId kModel{7};
constexpr std::size_t kPageBytes = std::size_t{64} << 10U;
constexpr std::int64_t kAheadPrompt = 16;
const char* const kGolden = "llama-mha-f32";

/// An engine on an emulated GPU whose sequences are planned as a worker's core would.
class Rig {
 public:
  explicit Rig(bool ahead, std::uint64_t pages = 128)
      : host_(pages,
              kPageBytes,
              device::CudaDeviceOptions{.page_bytes = kPageBytes,
                                        .bytes = pages * kPageBytes,
                                        .driver = emulator::EmulatedDriver::open().value()}),
        model_(host_.load(golden_directory() / kGolden, spec::DType::kF32)),
        engine_(
            Engine::create(host_.device(), host_.pool(), {.prefix_cache = true, .run_ahead = ahead})
                .value()) {
    add_model(kModel);
  }

  Engine& engine() { return *engine_; }
  memory::PagePool& pool() { return host_.pool(); }

  void add_model(ModelId id) {
    HEDDLE_CHECK(engine_->add_model(id, model_.spec, model_.layout, model_.window.base(), kKvLease)
                     .has_value());
    engine_->set_image_ready(id, model_.layout.bytes);
  }

  void add(std::uint64_t id, spec::SamplingParams params, ModelId model = kModel) {
    const std::vector<TokenId> ids = read_golden(kGolden).input_ids;
    SequenceStart start{.id = SequenceId{id},
                        .model = model,
                        .tokens = {ids.begin(), ids.begin() + kAheadPrompt},
                        .prompt_tokens = kAheadPrompt,
                        .params = std::move(params)};
    std::rotate(start.tokens.begin(),
                start.tokens.begin() + static_cast<std::ptrdiff_t>(id % 4),
                start.tokens.end());
    HEDDLE_CHECK(engine_->add_sequence(std::move(start)).has_value());
    known_[id] = kAheadPrompt;
    computed_[id] = 0;
    model_of_[id] = model;
  }
  void remove(std::uint64_t id) {
    engine_->remove_sequence(SequenceId{id});
    known_.erase(id);
  }
  void preempt(std::uint64_t id) {
    engine_->preempt(SequenceId{id});
    computed_[id] = 0;
  }

  /// One step of all that these sequences have pending. Those that end are removed.
  Result<StepOutcome> step(const std::vector<std::uint64_t>& ids) {
    policy::StepPlan plan{.stable_steps = policy::kStableUntilChange};
    for (const std::uint64_t id : ids) {
      if (plan.batches.empty() || plan.batches.back().model != model_of_.at(id)) {
        plan.batches.push_back({.model = model_of_.at(id)});
      }
      const std::int64_t tokens = known_.at(id) - computed_.at(id);
      plan.batches.back().slices.push_back({.sequence = SequenceId{id}, .tokens = tokens});
      plan.stable_steps = tokens > 1 ? 1 : plan.stable_steps;
    }
    auto outcome = engine_->run(plan);
    if (!outcome) {
      return outcome;
    }
    ahead += outcome->ahead ? 1 : 0;
    for (const SliceResult& result : outcome->results) {
      const std::uint64_t id = result.sequence.value();
      computed_.at(id) = result.computed;
      if (result.token) {
        EXPECT_EQ(result.position, std::ssize(text[id])) << "sequence " << id;
        text[id].push_back(*result.token);
        ++known_.at(id);
      }
      if (result.finish != spec::FinishReason::kNone) {
        remove(id);
      }
    }
    return outcome;
  }

  /// Sequences that have not ended.
  [[nodiscard]] std::vector<std::uint64_t> alive() const {
    std::vector<std::uint64_t> ids;
    for (const auto& [id, known] : known_) {
      ids.push_back(id);
    }
    return ids;
  }
  void finish() {
    while (!known_.empty()) {
      HEDDLE_CHECK(step(alive()).has_value());
    }
  }

  std::map<std::uint64_t, std::vector<TokenId>> text{};
  int ahead = 0;  ///< Steps that had been enqueued before.

 private:
  TestHost host_;
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
  std::map<std::uint64_t, std::int64_t> known_{};
  std::map<std::uint64_t, std::int64_t> computed_{};
  std::map<std::uint64_t, ModelId> model_of_{};
};

spec::SamplingParams greedy(std::int64_t tokens) {
  return {.temperature = 0.0F, .max_tokens = tokens, .ignore_eos = true};
}

class RunAheadTest : public testing::Test {
 protected:
  /// What a sequence says alone, a step at a time.
  static std::vector<TokenId> alone(std::uint64_t id, const spec::SamplingParams& params) {
    Rig rig(false);
    rig.add(id, params);
    rig.finish();
    EXPECT_EQ(rig.ahead, 0);
    return rig.text[id];
  }

  emulator::EmulatedDriver driver_{"memory=256MiB,granularity=65536"};
};

TEST_F(RunAheadTest, GreedyTextIsThatOfTransformers) {
  const Golden golden = read_golden(kGolden);
  Rig rig(true);
  rig.add(4, greedy(std::ssize(golden.greedy)));
  rig.finish();
  EXPECT_EQ(rig.text[4], golden.greedy);
  EXPECT_EQ(rig.ahead, std::ssize(golden.greedy) - 2) << "all but the prompt's step and the first";
}

TEST_F(RunAheadTest, TheNextStepIsEnqueuedBeforeThisOneIsWaitedFor) {
  Rig rig(true);
  rig.add(1, greedy(12));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.step({1}));
  }
  const unsigned long launched = driver_.calls("cuGraphLaunch");
  driver_.fail("cuEventSynchronize", 1, device::kCudaIllegalAddress);
  EXPECT_FALSE(rig.step({1}));
  EXPECT_EQ(driver_.calls("cuGraphLaunch"), launched + 1);
}

TEST_F(RunAheadTest, ThoseThatEndLeaveTheOthersAsTheyAre) {
  const std::vector<TokenId> long_text = alone(2, greedy(14));
  // Ends by its length, known before, and by a token, known when it has been drawn.
  spec::SamplingParams stops = greedy(14);
  stops.ignore_eos = false;
  stops.stop_tokens = {long_text[5]};
  const auto stopped_at = std::find(long_text.begin(), long_text.end(), long_text[5]);
  Rig rig(true);
  rig.add(1, greedy(6));
  rig.add(2, stops);
  rig.add(3, greedy(14));
  rig.add(6, greedy(14));
  rig.finish();
  EXPECT_EQ(rig.text[1], alone(1, greedy(6)));
  EXPECT_EQ(rig.text[2], std::vector(long_text.begin(), stopped_at + 1));
  EXPECT_EQ(rig.text[3], alone(3, greedy(14)));
  EXPECT_EQ(rig.text[6], long_text) << "the same prompt as the second";
  EXPECT_GE(rig.ahead, 10);
}

TEST_F(RunAheadTest, WhatIsDrawnDoesNotDependOnIt) {
  const auto params = [](std::uint64_t seed) {
    return spec::SamplingParams{
        .temperature = 1.5F, .seed = seed, .max_tokens = 16, .ignore_eos = true};
  };
  std::vector<std::map<std::uint64_t, std::vector<TokenId>>> texts;
  for (const bool ahead : {false, true}) {
    Rig rig(ahead);
    for (const std::uint64_t id : {1U, 2U, 3U}) {
      rig.add(id, params(id));
    }
    rig.finish();
    EXPECT_EQ(rig.ahead > 0, ahead);
    texts.push_back(rig.text);
  }
  EXPECT_EQ(texts[0], texts[1]);
}

TEST_F(RunAheadTest, ANewcomerWaitsForTheStepThatIsUnderWay) {
  Rig rig(true);
  rig.add(1, greedy(12));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rig.step({1}));
  }
  rig.add(2, greedy(4));
  const auto under_way = rig.step({1, 2});
  ASSERT_TRUE(under_way);
  EXPECT_TRUE(under_way->ahead);
  ASSERT_EQ(under_way->results.size(), 1U) << "nothing of the other has changed";
  EXPECT_EQ(under_way->results[0].sequence, SequenceId{1});
  const auto both = rig.step({1, 2});
  ASSERT_TRUE(both);
  EXPECT_FALSE(both->ahead);
  EXPECT_EQ(both->results.size(), 2U);
  rig.finish();
  EXPECT_EQ(rig.text[1], alone(1, greedy(12)));
  EXPECT_EQ(rig.text[2], alone(2, greedy(4)));
}

TEST_F(RunAheadTest, WhoGoesMeanwhileHasNoResultsAndLeavesItsBlocksToOthers) {
  Rig rig(true);
  for (const std::uint64_t id : {1U, 2U, 3U}) {
    rig.add(id, greedy(20));
  }
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.step({1, 2, 3}));
  }
  rig.remove(1);
  rig.preempt(2);
  rig.add(5, greedy(8));  // On the blocks of those, while the GPU may still write to them.
  const auto rest = rig.step({2, 3, 5});
  ASSERT_TRUE(rest);
  ASSERT_EQ(rest->results.size(), 1U);
  EXPECT_EQ(rest->results[0].sequence, SequenceId{3});
  rig.finish();
  EXPECT_EQ(rig.text[2], alone(2, greedy(20)));
  EXPECT_EQ(rig.text[3], alone(3, greedy(20)));
  EXPECT_EQ(rig.text[5], alone(5, greedy(8)));
}

TEST_F(RunAheadTest, AStepOfNobodyIsForgotten) {
  Rig rig(true);
  rig.add(1, greedy(20));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.step({1}));
  }
  rig.remove(1);
  rig.add(2, greedy(6));
  const auto fresh = rig.step({2});
  ASSERT_TRUE(fresh);
  EXPECT_FALSE(fresh->ahead);
  EXPECT_EQ(fresh->results.size(), 1U);
  rig.finish();
  EXPECT_EQ(rig.text[2], alone(2, greedy(6)));
}

TEST_F(RunAheadTest, PenaltiesOfWhatWasGeneratedWaitForIt) {
  spec::SamplingParams penalised = greedy(10);
  penalised.frequency_penalty = 1.5F;
  Rig rig(true);
  rig.add(1, penalised);
  rig.add(2, greedy(6));
  while (rig.alive().size() > 1) {
    ASSERT_TRUE(rig.step(rig.alive()));
    EXPECT_EQ(rig.ahead, 0) << "half of the batch alone would be a step for nothing";
  }
  rig.finish();
  EXPECT_EQ(rig.ahead, 0);
  EXPECT_EQ(rig.text[1], alone(1, penalised));
  EXPECT_EQ(rig.text[2], alone(2, greedy(6)));
}

TEST_F(RunAheadTest, AnotherModelsStepsComeBetween) {
  constexpr ModelId kOther{8};
  Rig rig(true);
  rig.add_model(kOther);
  rig.add(1, greedy(12));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rig.step({1}));
  }
  rig.add(2, greedy(8), kOther);
  const auto alone_step = rig.step({2});  // Of a plan that has nobody who is ahead.
  ASSERT_TRUE(alone_step);
  EXPECT_FALSE(alone_step->ahead);
  ASSERT_EQ(alone_step->results.size(), 1U);
  EXPECT_EQ(alone_step->results[0].sequence, SequenceId{2});
  const auto both = rig.step({1, 2});
  ASSERT_TRUE(both);
  EXPECT_TRUE(both->ahead);
  EXPECT_EQ(both->results.size(), 2U);
  rig.finish();
  EXPECT_EQ(rig.text[1], alone(1, greedy(12)));
  EXPECT_EQ(rig.text[2], alone(2, greedy(8)));
}

TEST_F(RunAheadTest, AModelGoesWhileAStepOfItsLastSequenceIsUnderWay) {
  Rig rig(true);
  rig.add(1, greedy(20));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.step({1}));
  }
  rig.remove(1);
  rig.engine().remove_model(kModel);
  rig.add_model(kModel);
  rig.add(2, greedy(6));
  rig.finish();
  EXPECT_EQ(rig.text[2], alone(2, greedy(6)));
}

TEST_F(RunAheadTest, NothingOfThePoolIsInUseOnceItIsSettled) {
  Rig rig(true);
  rig.add(1, greedy(20));
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(rig.step({1}));
  }
  rig.engine().settle();
  driver_.fail("kernel", 1, device::kCudaIllegalAddress);
  const auto there = rig.step({1});  // Enqueues the next one, which is not waited for.
  ASSERT_TRUE(there) << "its results were there";
  EXPECT_TRUE(there->ahead);
  rig.engine().settle();
  const auto lost = rig.step({1});
  ASSERT_FALSE(lost) << "what is found while settling is said by the next step";
  EXPECT_EQ(lost.error().code, Code::kUnavailable);
}

/// Pages run out: nobody is worse off than without.
TEST_F(RunAheadTest, WithoutPagesForItNothingIsAhead) {
  const auto run = [](bool ahead) {
    Rig rig(ahead);
    rig.add(1, greedy(200));
    rig.add(2, greedy(200));
    // All pages but those that the two need for now.
    HEDDLE_CHECK(rig.step({1, 2}).has_value());
    const auto held = rig.pool().take(memory::OwnerId{5}, rig.pool().free_count()).value();
    std::vector<std::size_t> starved;
    for (int i = 0; i < 200 && rig.alive().size() == 2; ++i) {
      auto outcome = rig.step({1, 2});
      HEDDLE_CHECK(outcome.has_value());
      if (!outcome->starved.empty()) {
        break;
      }
    }
    const auto text = rig.text;
    rig.pool().put(memory::OwnerId{5}, held);
    rig.finish();
    return std::pair(text, rig.text);
  };
  const auto with = run(true);
  const auto without = run(false);
  EXPECT_EQ(with.first, without.first) << "they starve at the same token";
  EXPECT_EQ(with.second, without.second);
}

}  // namespace
}  // namespace heddle::engine
