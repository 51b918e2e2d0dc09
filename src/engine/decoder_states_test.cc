// Models some of whose layers keep a state: what a state must survive. That tokens do not depend on
// the schedule is for invariance_test.cc, and what the layers compute for golden_test.cc.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
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
  explicit DecoderStatesTest(std::uint64_t pages = 128, std::size_t page_bytes = 65536)
      : host_(pages, page_bytes) {
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
  static Told tell(Engine& engine,
                   std::uint64_t id,
                   std::int64_t pending,
                   std::vector<TokenId>* said = nullptr) {
    Told told;
    for (auto finish = spec::FinishReason::kNone; finish == spec::FinishReason::kNone;) {
      const StepOutcome outcome = step(engine, id, pending);
      HEDDLE_CHECK(outcome.results.size() == 1);
      told.push_back(outcome.results[0].details.logprobs);
      finish = outcome.results[0].finish;
      if (said != nullptr) {
        said->push_back(*outcome.results[0].token);
      }
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

  TestHost host_;
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

/// An engine that caches prefixes, with the image there.
class StatePrefixTest : public DecoderStatesTest {
 protected:
  explicit StatePrefixTest(std::uint64_t pages = 128, std::size_t page_bytes = 65536)
      : DecoderStatesTest(pages, page_bytes) {
    engine_ = make_engine({.prefix_cache = true});
    load_to(model_.spec.layers + 1);
    plain_ = make_engine({});
    plain_->set_image_ready(kHybrid, model_.layout.bytes);
  }

  /// Tokens of a text of that number, behind the first `shared` ones of the golden text.
  [[nodiscard]] SequenceStart text(std::uint64_t id,
                                   std::int64_t tokens,
                                   std::int64_t shared,
                                   std::uint64_t seed) const {
    SequenceStart made = start(id, 1);
    made.prompt_tokens = tokens;
    Rng rng(seed);
    for (std::size_t i = 1; std::cmp_less(i, tokens); ++i) {
      made.tokens.push_back(
          std::cmp_less(i, shared)
              ? golden_.input_ids[i % golden_.input_ids.size()]
              : static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(model_.spec.vocab))));
    }
    return made;
  }

  /// What the sequence found; it has to tell what an engine without a cache tells.
  std::int64_t found(const SequenceStart& sequence, std::vector<TokenId>* said = nullptr) {
    HEDDLE_CHECK(plain_->add_sequence(sequence).has_value());
    const Told expected = tell(*plain_, sequence.id.value(), std::ssize(sequence.tokens));
    HEDDLE_CHECK(engine_->add_sequence(sequence).has_value());
    const std::int64_t computed = engine_->take_prefix(sequence.id);
    const std::int64_t pending = std::ssize(sequence.tokens) - computed;
    EXPECT_EQ(tell(*engine_, sequence.id.value(), pending, said), expected);
    host_.pool().check_invariants();
    return computed;
  }

  std::unique_ptr<Engine> plain_;
};

TEST_F(StatePrefixTest, APromptIsFoundButForItsLastBlock) {
  EXPECT_EQ(found(start(1, 70)), 0);
  EXPECT_EQ(found(start(2, 70)), 64);
  EXPECT_EQ(found(start(3, 64)), 0) << "its last token is computed, and 48 has no state";
  EXPECT_EQ(found(start(4, 64)), 48);
  SequenceStart salted = start(5, 70);
  salted.cache_salt = "another";
  EXPECT_EQ(found(salted), 0);
  EXPECT_EQ(engine_->kv_pages(kHybrid), 0);
  EXPECT_EQ(engine_->prefix_counts().at(kHybrid).hit_tokens, 112U);
}

TEST_F(StatePrefixTest, TheNextTurnGoesOnFromTheAnswer) {
  SequenceStart turn = start(1, 44);
  turn.params.max_tokens = 30;
  turn.params.ignore_eos = true;
  std::vector<TokenId> said;
  EXPECT_EQ(found(turn, &said), 0);
  SequenceStart next = turn;
  next.id = SequenceId{2};
  next.tokens.insert(next.tokens.end(), said.begin(), said.end());
  next.tokens.insert(next.tokens.end(), {5, 6, 7});
  next.prompt_tokens = std::ssize(next.tokens);
  EXPECT_EQ(found(next), 64) << "the last border within 44 tokens and 29 that were computed";
  SequenceStart other = text(3, 60, 44, 1);
  EXPECT_EQ(found(other), 32) << "another answer: the last border within the prompt";
}

TEST_F(StatePrefixTest, WhatSeveralBeginWithIsFoundFromTheThirdOn) {
  EXPECT_EQ(found(text(1, 120, 90, 1)), 0);
  EXPECT_EQ(found(text(2, 120, 90, 2)), 0) << "KV is cached of 80 tokens, and no state there";
  EXPECT_EQ(found(text(3, 120, 90, 3)), 80);
}

TEST_F(StatePrefixTest, ChunksDoNotDecideWhatIsFound) {
  for (const std::int64_t chunk : {1, 7, 16, 33, 70}) {
    SequenceStart sequence = start(1, 70);
    sequence.cache_salt = std::to_string(chunk);
    HEDDLE_CHECK(engine_->add_sequence(sequence).has_value());
    for (std::int64_t at = 0; at < 70; at += chunk) {
      (void)step(1, std::min<std::int64_t>(chunk, 70 - at));
    }
    engine_->remove_sequence(SequenceId{1});
    sequence.id = SequenceId{2};
    EXPECT_EQ(found(sequence), 64) << "chunks of " << chunk;
  }
}

TEST_F(StatePrefixTest, APreemptedSequenceLosesLessThanABlock) {
  SequenceStart sequence = start(1, 20);
  sequence.params.max_tokens = 60;
  sequence.params.ignore_eos = true;
  HEDDLE_CHECK(engine_->add_sequence(sequence).has_value());
  std::int64_t known = 20;  // Tokens, of which all but the last are computed between steps.
  std::int64_t computed = 0;
  while (known < 75) {
    ASSERT_EQ(step(1, known - computed).results.size(), 1U);
    ++known;
    engine_->preempt(SequenceId{1});
    computed = engine_->take_prefix(SequenceId{1});
    EXPECT_EQ(computed, (known - 1) / 16 * 16);
  }
  engine_->remove_sequence(SequenceId{1});
}

/// On small pages, of which a state has four to itself.
class SmallPagesTest : public StatePrefixTest {
 protected:
  SmallPagesTest() : StatePrefixTest(2000, 4096) {}
};

TEST_F(SmallPagesTest, OnAFullDeviceASequenceGoesOnInTheCopyItself) {
  EXPECT_EQ(found(start(1, 70)), 0);
  HEDDLE_CHECK(plain_->add_sequence(start(2, 70)).has_value());
  const Told expected = tell(*plain_, 2, 70);
  for (const std::uint64_t id : {2U, 3U}) {
    HEDDLE_CHECK(engine_->add_sequence(start(id, 70)).has_value());
    ASSERT_EQ(engine_->take_prefix(SequenceId{id}), 64);
  }
  // Beside what they hold there is room for two further blocks of keys and values.
  engine_->trim_cached(0, ledger::DropReason::kBound);
  const auto hoard = host_.pool().take(kWeightsLease, host_.pool().free_count() - 2).value();
  EXPECT_EQ(step(2, 6).starved, std::vector{SequenceId{2}}) << "the other goes on from it as well";
  engine_->preempt(SequenceId{3});
  EXPECT_EQ(tell(*engine_, 2, 6), expected);
  host_.pool().put(kWeightsLease, hoard);
  engine_->remove_sequence(SequenceId{3});
  EXPECT_EQ(found(start(4, 70)), 0) << "the copy has become a sequence's own state";
}

TEST_F(SmallPagesTest, WithoutAllOfACopyNothingIsFound) {
  EXPECT_EQ(found(start(1, 70)), 0);
  const std::int64_t cached = engine_->cached_pages();
  engine_->trim_cached(cached - 1, ledger::DropReason::kBound);
  EXPECT_EQ(found(start(2, 70)), 0) << "the state goes before its keys and values";
  EXPECT_EQ(found(start(3, 70)), 64);
}

TEST_F(StatePrefixTest, APassThatGivesUpLeavesNoCopy) {
  engine_ = make_engine({.prefix_cache = true, .kernels = &kernels_});
  load_to(model_.spec.layers);
  HEDDLE_CHECK(engine_->add_sequence(start(1, 70)).has_value());
  EXPECT_EQ(step(1, 70).unready, std::vector{SequenceId{1}});
  engine_->remove_sequence(SequenceId{1});
  EXPECT_EQ(engine_->cached_pages(), 0);
  load_to(model_.spec.layers + 1);
  EXPECT_EQ(found(start(2, 70)), 0);
  EXPECT_EQ(found(start(3, 70)), 64);
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
