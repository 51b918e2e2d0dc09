// What is told of prompts, held against the logits that transformers gave.

#include "engine/prompt_scores.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

constexpr ModelId kScored{7};
constexpr std::int64_t kScoredPrompt = 20;

class PromptScoresTest : public testing::Test {
 protected:
  PromptScoresTest()
      : golden_(read_golden("llama-gqa-sharded")),
        model_(host_.load(golden_directory() / "llama-gqa-sharded", spec::DType::kF32)),
        engine_(Engine::create(host_.device(), host_.pool(), {.prefix_cache = true}).value()) {
    EXPECT_TRUE(
        engine_->add_model(kScored, model_.spec, model_.layout, model_.window.base(), kKvLease));
    engine_->set_image_ready(kScored, model_.layout.bytes);
  }

  /// A prompt, or a part of one, the rest of which was generated.
  SequenceId add(std::int32_t top, std::int64_t prompt_tokens = kScoredPrompt) {
    const SequenceId id{++last_};
    const spec::SamplingParams params{.temperature = 0.0F, .max_tokens = 9, .prompt_logprobs = top};
    EXPECT_TRUE(engine_->add_sequence(
        {.id = id,
         .model = kScored,
         .tokens = {golden_.input_ids.begin(), golden_.input_ids.begin() + kScoredPrompt},
         .prompt_tokens = prompt_tokens,
         .params = params}));
    return id;
  }

  SliceResult run(SequenceId id, std::int64_t tokens) {
    const auto outcome = engine_->run(
        {.batches = {{.model = kScored, .slices = {{.sequence = id, .tokens = tokens}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    return outcome->results[0];
  }

  /// What is told of the prompt, computed so many tokens at once.
  std::vector<spec::PromptToken> told(SequenceId id, std::int64_t chunk) {
    for (std::int64_t done = 0; done < kScoredPrompt; done += chunk) {
      const SliceResult result = run(id, std::min(chunk, kScoredPrompt - done));
      if (result.token) {
        return result.details.prompt;
      }
      EXPECT_TRUE(result.details.prompt.empty()) << "the prompt is not over";
    }
    return {};
  }

  Golden golden_;
  TestHost host_{};
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
  std::uint64_t last_ = 0;
};

TEST_F(PromptScoresTest, AreTheModelsOwnLogProbabilities) {
  const std::vector<spec::PromptToken> tokens = told(add(3), kScoredPrompt);
  ASSERT_EQ(tokens.size(), kScoredPrompt - 1);
  const auto vocab = static_cast<std::size_t>(model_.spec.vocab);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const float* row = golden_.logits_f32.data() + i * vocab;
    double total = 0;
    for (std::size_t t = 0; t < vocab; ++t) {
      total += std::exp(static_cast<double>(row[t]));
    }
    ASSERT_EQ(tokens[i].logprobs.size(), 4U);
    EXPECT_EQ(tokens[i].logprobs[0].token, golden_.input_ids[i + 1]);
    for (const spec::TokenLogprob& one : tokens[i].logprobs) {
      EXPECT_NEAR(one.logprob, static_cast<double>(row[one.token]) - std::log(total), 1e-4);
    }
    EXPECT_EQ(tokens[i].logprobs[1].token, std::max_element(row, row + vocab) - row);
  }
}

TEST_F(PromptScoresTest, DoNotDependOnHowThePromptIsCut) {
  const std::vector<spec::PromptToken> whole = told(add(2), kScoredPrompt);
  for (const std::int64_t chunk : {1, 7, 19}) {
    EXPECT_EQ(told(add(2), chunk), whole) << chunk;
  }
}

TEST_F(PromptScoresTest, ACachedPrefixSparesNothing) {
  const std::vector<spec::PromptToken> whole = told(add(0), kScoredPrompt);
  const SequenceId plain = add(-1);
  EXPECT_GT(engine_->take_prefix(plain), 0) << "for others it does";
  const SequenceId again = add(0);
  EXPECT_EQ(engine_->take_prefix(again), 0);
  EXPECT_EQ(told(again, kScoredPrompt), whole);
}

TEST_F(PromptScoresTest, APreemptionInThePromptBeginsAnew) {
  const std::vector<spec::PromptToken> whole = told(add(1), kScoredPrompt);
  const SequenceId id = add(1);
  run(id, 11);
  engine_->preempt(id);
  EXPECT_EQ(told(id, 8), whole);
}

TEST_F(PromptScoresTest, AreToldOnce) {
  const SequenceId id = add(1);
  EXPECT_FALSE(told(id, kScoredPrompt).empty());
  EXPECT_TRUE(run(id, 1).details.prompt.empty());
  engine_->preempt(id);
  EXPECT_TRUE(run(id, kScoredPrompt + 2).details.prompt.empty());
  // Of one that was interrupted after its first token they are known.
  EXPECT_TRUE(run(add(1, kScoredPrompt - 4), kScoredPrompt).details.prompt.empty());
  EXPECT_TRUE(told(add(-1), kScoredPrompt).empty()) << "nobody asked";
}

TEST_F(PromptScoresTest, APromptOfOneTokenHasNone) {
  const SequenceId id{99};
  ASSERT_TRUE(engine_->add_sequence({.id = id,
                                     .model = kScored,
                                     .tokens = {5},
                                     .prompt_tokens = 1,
                                     .params = {.max_tokens = 1, .prompt_logprobs = 5}}));
  EXPECT_TRUE(run(id, 1).details.prompt.empty());
}

}  // namespace
}  // namespace heddle::engine
