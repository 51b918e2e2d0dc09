#include "engine/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "device/fake/fake_device.h"
#include "engine/test_host.h"
#include "text/test_model_directory.h"

namespace heddle::engine {
namespace {

using spec::FinishReason;

constexpr ModelId kModel{7};
constexpr ModelId kOther{9};

policy::StepPlan plan_of(ModelId model, SequenceId sequence, std::int64_t tokens) {
  return {.batches = {{.model = model, .slices = {{.sequence = sequence, .tokens = tokens}}}}};
}

class EngineTest : public testing::Test {
 protected:
  EngineTest() : engine_(Engine::create(host_.device(), host_.pool()).value()) {
    add("llama-gqa-sharded", kModel, spec::DType::kBf16);
  }

  void add(const std::string& golden, ModelId id, spec::DType dtype) {
    models_.emplace(id, host_.load(golden_directory() / golden, dtype));
    const LoadedModel& model = models_.at(id);
    ASSERT_TRUE(engine_->add_model(id, model.spec, model.layout, model.window.base(), kKvLease));
    engine_->set_image_ready(id, model.layout.bytes);
  }

  SequenceStart start(std::uint64_t id, spec::SamplingParams params, std::int64_t prompt = 20) {
    const Golden golden = read_golden("llama-gqa-sharded");
    params.max_tokens = std::max<std::int64_t>(params.max_tokens, 1);
    return {.id = SequenceId{id},
            .model = kModel,
            .tokens = {golden.input_ids.begin(), golden.input_ids.begin() + prompt},
            .prompt_tokens = prompt,
            .params = std::move(params)};
  }

  /// Runs one slice that is expected to succeed.
  SliceResult run(SequenceId sequence, std::int64_t tokens) {
    const auto outcome = engine_->run(plan_of(kModel, sequence, tokens));
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    return outcome->results[0];
  }

  /// All generated tokens of a sequence, run alone; removes it.
  std::vector<TokenId> generate(const SequenceStart& sequence, FinishReason* finish = nullptr) {
    HEDDLE_CHECK(engine_->add_sequence(sequence).has_value());
    std::vector<TokenId> tokens;
    SliceResult last = run(sequence.id, static_cast<std::int64_t>(sequence.tokens.size()));
    tokens.push_back(*last.token);
    while (last.finish == FinishReason::kNone) {
      last = run(sequence.id, 1);
      tokens.push_back(*last.token);
    }
    if (finish != nullptr) {
      *finish = last.finish;
    }
    engine_->remove_sequence(sequence.id);
    return tokens;
  }

  TestHost host_{};
  std::map<ModelId, LoadedModel> models_{};
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, CountsWhatItComputedAndWhereATokenStands) {
  ASSERT_TRUE(engine_->add_sequence(start(1, {.temperature = 0.0F, .max_tokens = 3})));
  const SliceResult first = run(SequenceId{1}, 12);
  EXPECT_EQ(first.computed, 12);
  EXPECT_FALSE(first.token.has_value()) << "the prompt is not over";
  const SliceResult second = run(SequenceId{1}, 8);
  EXPECT_EQ(second.computed, 20);
  EXPECT_TRUE(second.token.has_value());
  EXPECT_EQ(second.position, 0);
  const SliceResult third = run(SequenceId{1}, 1);
  EXPECT_EQ(third.computed, 21);
  EXPECT_EQ(third.position, 1);
}

TEST_F(EngineTest, EndsAtStopTokenLengthAndContext) {
  const auto free_run = generate(start(1, {.temperature = 0.0F, .max_tokens = 8}));
  ASSERT_EQ(free_run.size(), 8U);
  FinishReason finish{};

  spec::SamplingParams stopping{.temperature = 0.0F, .max_tokens = 8, .stop_tokens = {free_run[3]}};
  auto expected = free_run;
  expected.resize(static_cast<std::size_t>(
      std::find(free_run.begin(), free_run.end(), free_run[3]) - free_run.begin() + 1));
  EXPECT_EQ(generate(start(2, stopping), &finish), expected);
  EXPECT_EQ(finish, FinishReason::kStop);

  stopping.ignore_eos = true;
  EXPECT_EQ(generate(start(3, stopping), &finish), free_run);
  EXPECT_EQ(finish, FinishReason::kLength);

  const auto context = static_cast<std::size_t>(models_.at(kModel).spec.max_position);
  EXPECT_EQ(generate(start(4, {.temperature = 0.0F, .max_tokens = 100'000}), &finish).size(),
            context - 20);
  EXPECT_EQ(finish, FinishReason::kLength);
}

TEST_F(EngineTest, NothingStopsBeforeMinTokens) {
  const auto free_run = generate(start(1, {.temperature = 0.0F, .max_tokens = 12}));
  spec::SamplingParams held{.temperature = 0.0F, .max_tokens = 12, .stop_tokens = {free_run[2]}};
  ASSERT_EQ(generate(start(2, held)).size(), 3U);
  held.min_tokens = 6;
  const auto longer = generate(start(3, held));
  EXPECT_GT(longer.size(), 6U);
  EXPECT_EQ(std::find(longer.begin(), longer.begin() + 6, free_run[2]), longer.begin() + 6);
}

// A word of two tokens that the free run has, and one of one; the first of the two may come alone.
TEST_F(EngineTest, BadWordsDoNotCome) {
  const auto free_run = generate(start(1, {.temperature = 0.0F, .max_tokens = 12}));
  spec::SamplingParams banned{.temperature = 0.0F, .max_tokens = 12};
  banned.bad_words = {{{free_run[1], free_run[2]}}, {{free_run[0]}}};
  for (const float temperature : {0.0F, 1.5F}) {
    banned.temperature = temperature;
    const auto tokens = generate(start(2, banned));
    EXPECT_EQ(std::find(tokens.begin(), tokens.end(), free_run[0]), tokens.end());
    const auto& word = banned.bad_words[0].tokens;
    EXPECT_EQ(std::search(tokens.begin(), tokens.end(), word.begin(), word.end()), tokens.end());
  }
  banned.bad_words = {{{static_cast<TokenId>(models_.at(kModel).spec.vocab)}}};
  EXPECT_FALSE(engine_->add_sequence(start(3, banned)));
}

TEST_F(EngineTest, DrawsFromSeedAndChoiceAlone) {
  const spec::SamplingParams params{.temperature = 1.2F, .seed = 42, .choice = 1, .max_tokens = 24};
  const auto tokens = generate(start(1, params));
  EXPECT_EQ(generate(start(2, params)), tokens);
  auto other = params;
  other.seed = 43;
  EXPECT_NE(generate(start(3, other)), tokens);
  other = params;
  other.choice = 2;
  EXPECT_NE(generate(start(4, other)), tokens);
}

TEST_F(EngineTest, PenaltiesAndBiasReachTheLogits) {
  const auto plain = generate(start(1, {.temperature = 0.0F, .max_tokens = 12}));
  spec::SamplingParams banned{.temperature = 0.0F, .max_tokens = 12};
  banned.logit_bias = {{plain[0], -100.0F}};
  for (const TokenId token : generate(start(2, banned))) {
    EXPECT_NE(token, plain[0]);
  }
  const auto fresh =
      generate(start(3, {.temperature = 0.0F, .presence_penalty = 1000.0F, .max_tokens = 12}));
  auto sorted = fresh;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(std::adjacent_find(sorted.begin(), sorted.end()), sorted.end())
      << "no token comes twice";
  const auto unseen =
      start(4, {.temperature = 0.0F, .repetition_penalty = 1000.0F, .max_tokens = 1});
  const auto first = generate(unseen);
  EXPECT_EQ(std::count(unseen.tokens.begin(), unseen.tokens.end(), first[0]), 0)
      << "the prompt counts for repetition";
}

TEST_F(EngineTest, LogprobsAreOfTheModelsOwnDistribution) {
  const Golden golden = read_golden("llama-gqa-sharded");
  const auto vocab = static_cast<std::size_t>(models_.at(kModel).spec.vocab);
  const float* row = golden.logits_f32.data() + 19 * vocab;
  double total = 0.0;
  for (std::size_t i = 0; i < vocab; ++i) {
    total += std::exp(static_cast<double>(row[i]));
  }
  const TokenId unlikely = 5;
  const spec::SamplingParams params{.temperature = 0.0F,
                                    .repetition_penalty = 1.3F,
                                    .logit_bias = {{unlikely, 100.0F}},
                                    .logprobs = 4};
  ASSERT_TRUE(engine_->add_sequence(start(1, params)));
  const SliceResult result = run(SequenceId{1}, 20);
  ASSERT_EQ(result.token, unlikely);
  const auto& told = result.details.logprobs;
  ASSERT_EQ(told.size(), 5U);
  EXPECT_EQ(told[0].token, unlikely);
  for (const spec::TokenLogprob& one : told) {
    EXPECT_NEAR(one.logprob, static_cast<double>(row[one.token]) - std::log(total), 0.02);
  }
  EXPECT_EQ(told[1].token, std::max_element(row, row + vocab) - row);
  EXPECT_GE(told[1].logprob, told[2].logprob);

  ASSERT_TRUE(engine_->add_sequence(start(2, {.temperature = 0.0F})));
  EXPECT_TRUE(run(SequenceId{2}, 20).details.logprobs.empty()) << "nobody asked";
}

TEST_F(EngineTest, AGrammarRulesEveryTokenAndEndsTheAnswer) {
  const text::ByteModelDirectory directory('A', 62);
  const auto text = text::TextModel::open(directory.path()).value();
  const auto vocab = models_.at(kModel).spec.vocab;
  const auto vocabulary = text::GrammarVocabulary::make(*text, vocab).value();
  const spec::Grammar grammar{.kind = spec::GrammarKind::kRegex, .text = "X[a-f]{3}(yes|no)"};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SequenceStart constrained = start(seed, {.temperature = 2.0F, .seed = seed, .max_tokens = 50});
    constrained.grammar = text::GrammarMatcher::open(vocabulary, grammar).value();
    FinishReason finish{};
    std::string spelled;
    for (const TokenId token : generate(constrained, &finish)) {
      spelled += static_cast<char>('A' + token);
    }
    EXPECT_EQ(finish, FinishReason::kStop);
    EXPECT_EQ(spelled[0], 'X');
    EXPECT_EQ(spelled.find_first_not_of("abcdef", 1), 4U) << spelled;
    EXPECT_TRUE(spelled.ends_with("yes") || spelled.ends_with("no")) << spelled;
  }
  SequenceStart wrong = start(9, {.max_tokens = 50});
  wrong.grammar = text::GrammarMatcher::open(vocabulary, grammar).value();
  wrong.tokens.push_back('Q' - 'A');
  const auto refused = engine_->add_sequence(std::move(wrong));
  ASSERT_FALSE(refused) << "what was generated is not of this grammar";
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
}

/// The rows of the model's output matrix, as stored.
std::vector<float> head_of(const std::string& golden) {
  auto tensors = store::TensorSet::open(golden_directory() / golden).value();
  const auto* entry = tensors.find("lm_head.weight");
  std::vector<std::uint16_t> stored(entry->tensor.bytes / 2);
  HEDDLE_CHECK(tensors.file_of(*entry)
                   .read(entry->tensor.offset, std::as_writable_bytes(std::span(stored)))
                   .has_value());
  std::vector<float> head;
  for (const std::uint16_t bits : stored) {
    head.push_back(std::bit_cast<float>(std::uint32_t{bits} << 16U));
  }
  return head;
}

TEST_F(EngineTest, AnEmbeddingIsTheHiddenStateThatTheHeadReads) {
  const Golden golden = read_golden("llama-gqa-sharded");
  const std::vector<float> head = head_of("llama-gqa-sharded");
  ASSERT_TRUE(engine_->add_sequence(start(1, {.pooling = spec::Pooling::kLast})));
  EXPECT_FALSE(run(SequenceId{1}, 12).token.has_value());
  const SliceResult result = run(SequenceId{1}, 8);
  EXPECT_EQ(result.finish, FinishReason::kStop);
  const std::vector<float>& state = result.details.embedding;
  const auto hidden = static_cast<std::size_t>(models_.at(kModel).spec.hidden);
  ASSERT_EQ(state.size(), hidden);
  const auto vocab = static_cast<std::size_t>(models_.at(kModel).spec.vocab);
  for (std::size_t token = 0; token < vocab; ++token) {
    double logit = 0.0;
    for (std::size_t i = 0; i < hidden; ++i) {
      logit += static_cast<double>(state[i]) * static_cast<double>(head[token * hidden + i]);
    }
    EXPECT_NEAR(logit, static_cast<double>(golden.logits_f32[19 * vocab + token]), 0.05);
  }
}

TEST_F(EngineTest, TheMeanIsThatOfEveryTokenHoweverTheTextWasCut) {
  std::vector<double> sum;
  for (std::int64_t length = 1; length <= 20; ++length) {
    const auto id = static_cast<std::uint64_t>(length);
    ASSERT_TRUE(engine_->add_sequence(start(id, {.pooling = spec::Pooling::kLast}, length)));
    const auto state = run(SequenceId{id}, length).details.embedding;
    sum.resize(state.size());
    for (std::size_t i = 0; i < state.size(); ++i) {
      sum[i] += static_cast<double>(state[i]);
    }
  }
  const spec::SamplingParams mean{.pooling = spec::Pooling::kMean};
  ASSERT_TRUE(engine_->add_sequence(start(30, mean)));
  const auto whole = run(SequenceId{30}, 20).details.embedding;
  ASSERT_TRUE(engine_->add_sequence(start(31, mean)));
  (void)run(SequenceId{31}, 7);
  engine_->preempt(SequenceId{31});
  (void)run(SequenceId{31}, 3);
  const auto parts = run(SequenceId{31}, 17).details.embedding;
  EXPECT_EQ(whole, parts);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_FLOAT_EQ(whole[i], static_cast<float>(sum[i] / 20));
  }
}

TEST_F(EngineTest, RefusesWhatCannotRun) {
  const auto message = [&](const SequenceStart& sequence) {
    const auto added = engine_->add_sequence(sequence);
    EXPECT_FALSE(added);
    EXPECT_EQ(added.error().code, Code::kInvalidArgument);
    return added.error().message;
  };
  auto sequence = start(1, {.max_tokens = 4});
  sequence.tokens[2] = 71;
  EXPECT_EQ(message(sequence), "add sequence 1: token 71 is outside the vocabulary of 71");
  sequence = start(1, {.max_tokens = 4});
  sequence.params.logit_bias = {{-3, 1.0F}};
  EXPECT_EQ(message(sequence),
            "add sequence 1: logit_bias for token -3, which is outside the vocabulary of 71");
  sequence = start(1, {.max_tokens = 4});
  sequence.tokens.resize(128, 5);
  EXPECT_EQ(message(sequence), "add sequence 1: 128 tokens leave no room in the context of 128");
  sequence = start(1, {.max_tokens = 4});
  sequence.prompt_tokens = 16;
  EXPECT_EQ(message(sequence),
            "add sequence 1: 4 tokens are generated already, and max_tokens is 4");
  sequence.tokens.clear();
  EXPECT_NE(message(sequence).find("at least 1"), std::string::npos);
}

TEST_F(EngineTest, SlicesThatCannotBeAreBugs) {
  ASSERT_TRUE(engine_->add_sequence(start(1, {.max_tokens = 4})));
  EXPECT_DEATH((void)engine_->run(plan_of(kModel, SequenceId{1}, 21)), "CHECK failed");
  EXPECT_DEATH((void)engine_->run(plan_of(kModel, SequenceId{1}, 0)), "CHECK failed");
  EXPECT_DEATH((void)engine_->run(plan_of(kModel, SequenceId{9}, 1)), "CHECK failed");
  auto twice = plan_of(kModel, SequenceId{1}, 2);
  twice.batches[0].slices.push_back(twice.batches[0].slices[0]);
  EXPECT_DEATH((void)engine_->run(twice), "CHECK failed");
}

TEST_F(EngineTest, GivesBackEveryPage) {
  const std::int64_t free = host_.pool().free_count();
  ASSERT_TRUE(engine_->add_sequence(start(1, {.max_tokens = 4})));
  EXPECT_EQ(engine_->kv_pages(kModel), 0) << "holds no KV before it runs";
  run(SequenceId{1}, 20);
  EXPECT_GT(engine_->kv_pages(kModel), 0);
  EXPECT_EQ(host_.pool().free_count(), free - engine_->kv_pages(kModel));
  EXPECT_LE(engine_->kv_pages(kModel), engine_->kv_pages_for(kModel, 20));
  engine_->preempt(SequenceId{1});
  EXPECT_EQ(host_.pool().free_count(), free);
  run(SequenceId{1}, 20);
  engine_->remove_sequence(SequenceId{1});
  EXPECT_EQ(host_.pool().free_count(), free);
}

TEST_F(EngineTest, StarvesWhenNoPageIsFreeAndGoesOnWhenOneIs) {
  const auto expected = generate(start(1, {.temperature = 0.0F, .max_tokens = 4}));
  ASSERT_TRUE(engine_->add_sequence(start(2, {.temperature = 0.0F, .max_tokens = 4})));
  const auto hoard = host_.pool().take(kWeightsLease, host_.pool().free_count()).value();
  const auto outcome = engine_->run(plan_of(kModel, SequenceId{2}, 20));
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->starved, std::vector{SequenceId{2}});
  EXPECT_TRUE(outcome->results.empty());
  EXPECT_EQ(engine_->kv_pages(kModel), 0);
  host_.pool().put(kWeightsLease, hoard);
  EXPECT_EQ(run(SequenceId{2}, 20).token, expected[0]);
}

TEST_F(EngineTest, FailsOnlyTheSequenceWhoseLogitsAreNotNumbers) {
  add("qwen3-tied", kOther, spec::DType::kBf16);
  const LoadedModel& broken = models_.at(kOther);
  const auto& final_norm =
      *std::find_if(broken.layout.tensors.begin(), broken.layout.tensors.end(), [](const auto& t) {
        return t.role == store::Role::kFinalNorm;
      });
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::size_t page_bytes = host_.device().properties().page_bytes;
  std::memcpy(host_.device().page_address(broken.pages[final_norm.offset / page_bytes]) +
                  final_norm.offset % page_bytes,
              &nan,
              sizeof(nan));
  ASSERT_TRUE(engine_->add_sequence(start(1, {.max_tokens = 4})));
  auto doomed = start(2, {.max_tokens = 4});
  doomed.model = kOther;
  ASSERT_TRUE(engine_->add_sequence(doomed));
  policy::StepPlan plan = plan_of(kModel, SequenceId{1}, 20);
  plan.batches.push_back(plan_of(kOther, SequenceId{2}, 20).batches[0]);
  const auto outcome = engine_->run(plan);
  ASSERT_TRUE(outcome);
  ASSERT_EQ(outcome->results.size(), 1U);
  EXPECT_EQ(outcome->results[0].sequence, SequenceId{1});
  ASSERT_EQ(outcome->failed.size(), 1U);
  EXPECT_EQ(outcome->failed[0].sequence, SequenceId{2});
  EXPECT_NE(outcome->failed[0].error.message.find("not numbers"), std::string::npos);
}

// The weights arrive stage by stage while the step runs; each byte that is used before it has
// arrived is a zero and would show in the answer.
TEST_F(EngineTest, RunsEachStageWhenItsBytesAreThere) {
  const auto expected = generate(start(1, {.temperature = 0.0F, .max_tokens = 6}));
  const LoadedModel& model = models_.at(kModel);
  const std::size_t page_bytes = host_.device().properties().page_bytes;
  const auto image_byte = [&](std::uint64_t at) -> std::byte& {
    return host_.device().page_address(model.pages[at / page_bytes])[at % page_bytes];
  };
  std::vector<std::byte> image(model.layout.bytes);
  for (std::uint64_t at = 0; at < image.size(); ++at) {
    image[at] = image_byte(at);
    image_byte(at) = std::byte{0};
  }
  ASSERT_TRUE(engine_->add_model(kOther, model.spec, model.layout, model.window.base(), kKvLease));
  std::thread loader([&] {
    std::uint64_t done = 0;
    for (const std::uint64_t end : model.layout.stage_end) {
      for (; done < end; ++done) {
        image_byte(done) = image[done];
      }
      engine_->set_image_ready(kOther, done);
    }
  });
  auto sequence = start(2, {.temperature = 0.0F, .max_tokens = 6});
  sequence.model = kOther;
  ASSERT_TRUE(engine_->add_sequence(sequence));
  const auto outcome = engine_->run(plan_of(kOther, SequenceId{2}, 20));
  loader.join();
  ASSERT_TRUE(outcome);
  ASSERT_EQ(outcome->results.size(), 1U);
  EXPECT_EQ(outcome->results[0].token, expected[0]);
}

TEST_F(EngineTest, GivesUpOnAnAbandonedLoadAndLeavesTheRest) {
  const LoadedModel& model = models_.at(kModel);
  ASSERT_TRUE(engine_->add_model(kOther, model.spec, model.layout, model.window.base(), kKvLease));
  engine_->set_image_ready(kOther, model.layout.stage_end[1]);  // The first layer, and no more.
  auto waiting = start(1, {.max_tokens = 4});
  waiting.model = kOther;
  ASSERT_TRUE(engine_->add_sequence(waiting));
  ASSERT_TRUE(engine_->add_sequence(start(2, {.max_tokens = 4})));
  policy::StepPlan plan = plan_of(kOther, SequenceId{1}, 20);
  plan.batches.push_back(plan_of(kModel, SequenceId{2}, 20).batches[0]);

  std::thread quitter([&] { engine_->abandon_image(kOther); });
  const auto outcome = engine_->run(plan);
  quitter.join();

  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->unready, std::vector{SequenceId{1}});
  ASSERT_EQ(outcome->results.size(), 1U);
  EXPECT_EQ(outcome->results[0].sequence, SequenceId{2});
  EXPECT_EQ(engine_->kv_pages(kOther), 0) << "nothing of it has changed";
  engine_->remove_sequence(SequenceId{1});
  engine_->remove_model(kOther);
  engine_->set_image_ready(kOther, 5);  // Late news of a model that is gone.
}

/// In one turn, or where more tell log probabilities than may at once, in several.
TEST_F(EngineTest, MoreRowsThatTellThanMayAtOnce) {
  constexpr std::uint64_t kSequences = 75;
  std::uint64_t last = 0;
  for (const std::uint64_t telling : {0U, 20U, 70U}) {
    policy::ModelBatch batch{.model = kModel, .slices = {}};
    const auto expected =
        generate(start(1000, {.temperature = 0.0F, .max_tokens = 1, .logprobs = 2}, 6));
    for (std::uint64_t i = 0; i < kSequences; ++i) {
      const std::int32_t tells = i < telling ? 2 : -1;
      const spec::SamplingParams params{.temperature = 0.0F, .max_tokens = 1, .logprobs = tells};
      ASSERT_TRUE(engine_->add_sequence(start(++last, params, 6)));
      batch.slices.push_back({.sequence = SequenceId{last}, .tokens = 6});
    }
    const auto outcome = engine_->run({.batches = {batch}});
    ASSERT_TRUE(outcome);
    ASSERT_EQ(outcome->results.size(), kSequences);
    for (std::uint64_t i = 0; i < kSequences; ++i) {
      const SliceResult& result = outcome->results[i];
      EXPECT_EQ(result.token, expected[0]);
      ASSERT_EQ(result.details.logprobs.empty(), i >= telling) << i << " of " << telling;
      if (i < telling) {
        EXPECT_EQ(result.details.logprobs[0].token, *result.token);
      }
    }
    for (const policy::StepSlice& slice : batch.slices) {
      engine_->remove_sequence(slice.sequence);
    }
  }
}

TEST(EngineCreate, NamesADeviceThatHasNoKernels) {
  TestHost host(2);
  device::FakeDevice stranger(host.device().properties().page_bytes, 2);
  const auto engine = Engine::create(stranger, host.pool());
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("fake"), std::string::npos);
}

/// An engine that keeps prefixes.
class PrefixCacheTest : public EngineTest {
 protected:
  PrefixCacheTest() {
    engine_ = Engine::create(host_.device(), host_.pool(), {.prefix_cache = true}).value();
    const LoadedModel& model = models_.at(kModel);
    HEDDLE_CHECK(engine_->add_model(kModel, model.spec, model.layout, model.window.base(), kKvLease)
                     .has_value());
    engine_->set_image_ready(kModel, model.layout.bytes);
  }

  /// What a sequence gets of the cache; it is computed and removed.
  std::int64_t take(const SequenceStart& sequence, SliceResult* result = nullptr) {
    HEDDLE_CHECK(engine_->add_sequence(sequence).has_value());
    const std::int64_t taken = engine_->take_prefix(sequence.id);
    const SliceResult done =
        run(sequence.id, static_cast<std::int64_t>(sequence.tokens.size()) - taken);
    if (result != nullptr) {
      *result = done;
    }
    engine_->remove_sequence(sequence.id);
    return taken;
  }
};

TEST_F(PrefixCacheTest, TheSecondOfTwoAlikeComputesOnlyTheRest) {
  const SequenceStart prompt = start(1, {.temperature = 0.0F}, 48);
  SliceResult first;
  EXPECT_EQ(take(prompt, &first), 0);
  EXPECT_EQ(first.details.cached_tokens, 0);
  EXPECT_EQ(engine_->kv_pages(kModel), 0);
  EXPECT_GT(engine_->cached_pages(), 0);
  SliceResult second;
  const std::int64_t taken = take(prompt, &second);
  EXPECT_GE(taken, 16);
  EXPECT_LT(taken, 48);
  EXPECT_EQ(second.token, first.token);
  EXPECT_EQ(second.computed, 48);
  EXPECT_EQ(second.details.cached_tokens, taken);
  EXPECT_EQ(engine_->prefix_counts().at(kModel),
            (PrefixCounts{.queried_tokens = 96, .hit_tokens = static_cast<std::uint64_t>(taken)}));
}

// A prompt of whole blocks that are all cached still has a last token to compute, or there would be
// no logits to draw from.
TEST_F(PrefixCacheTest, TheLastTokenIsAlwaysComputed) {
  take(start(1, {}, 48));
  const std::int64_t most = take(start(2, {}, 48));
  for (std::int64_t size = 1; size <= 48; ++size) {
    const std::int64_t taken = take(start(3, {}, size));
    EXPECT_LT(taken, size);
    EXPECT_GE(taken + 32, std::min(size, most));
  }
}

TEST_F(PrefixCacheTest, OtherSaltsShareNothing) {
  SequenceStart mine = start(1, {}, 48);
  mine.cache_salt = "mine";
  EXPECT_EQ(take(mine), 0);
  EXPECT_EQ(take(start(2, {}, 48)), 0);
  SequenceStart others = start(3, {}, 48);
  others.cache_salt = "others";
  EXPECT_EQ(take(others), 0);
  EXPECT_GT(take(mine), 0);
}

TEST_F(PrefixCacheTest, AMeanOfAllStatesSkipsNone) {
  take(start(1, {}, 48));
  EXPECT_EQ(take(start(2, {.pooling = spec::Pooling::kMean}, 48)), 0);
  EXPECT_GT(take(start(3, {.pooling = spec::Pooling::kLast}, 48)), 0);
}

// An interrupted sequence finds its own KV again, the tokens it has generated included.
TEST_F(PrefixCacheTest, APreemptedSequenceGoesOnWhereItWas) {
  const auto expected = generate(start(1, {.temperature = 0.0F, .max_tokens = 40}));
  engine_->trim_cached(0, ledger::DropReason::kBound);
  EXPECT_EQ(engine_->cached_pages(), 0);
  ASSERT_TRUE(engine_->add_sequence(start(2, {.temperature = 0.0F, .max_tokens = 40})));
  std::vector<TokenId> tokens;
  EXPECT_EQ(engine_->take_prefix(SequenceId{2}), 0);
  std::int64_t computed = 0;
  for (std::int64_t size = 20; size < 60; ++size) {
    if (size == 55) {
      engine_->preempt(SequenceId{2});
      computed = engine_->take_prefix(SequenceId{2});
      EXPECT_GT(computed, 20);
    }
    const SliceResult result = run(SequenceId{2}, size - computed);
    EXPECT_EQ(result.details.cached_tokens, 0) << "the prompt was computed";
    computed = result.computed;
    tokens.push_back(*result.token);
  }
  EXPECT_EQ(tokens, expected);
}

TEST_F(PrefixCacheTest, AModelThatGoesTakesItsCacheAlong) {
  const std::int64_t free = host_.pool().free_count();
  take(start(1, {}, 48));
  EXPECT_LT(host_.pool().free_count(), free);
  engine_->remove_model(kModel);
  EXPECT_EQ(host_.pool().free_count(), free);
  EXPECT_EQ(engine_->cached_pages(), 0);
  EXPECT_GT(engine_->dropped_pages()[static_cast<std::size_t>(ledger::DropReason::kClosed)], 0U);
}

TEST_F(EngineTest, WithoutAPrefixCacheNothingIsKept) {
  const std::int64_t free = host_.pool().free_count();
  generate(start(1, {}, 40));
  EXPECT_EQ(host_.pool().free_count(), free);
  ASSERT_TRUE(engine_->add_sequence(start(2, {}, 40)));
  EXPECT_EQ(engine_->take_prefix(SequenceId{2}), 0);
}

}  // namespace
}  // namespace heddle::engine
