// KV that is kept while its model is away, or while others have its pages, gives the text that
// computing it again gives.

#include "engine/kept_kv.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/test_host.h"

namespace heddle::engine {
namespace {

using spec::FinishReason;

constexpr ModelId kHere{1};
constexpr std::int64_t kPromptTokens = 90;
constexpr std::int64_t kAnswerTokens = 12;

/// An engine with one golden model that comes and goes.
class Keeper {
 public:
  explicit Keeper(const std::string& name,
                  std::int64_t kv_pages,
                  std::size_t page_bytes = 4096,
                  std::int64_t free_pages = 64)
      : host_(700, page_bytes),
        model_(host_.load(golden_directory() / name, spec::DType::kF32)),
        engine_(Engine::create(host_.device(),
                               host_.pool(),
                               {.max_batch_tokens = 64, .prefix_cache = true, .kv_pages = kv_pages})
                    .value()) {
    come(kHere);
    // Nobody has more than these.
    HEDDLE_CHECK(
        host_.pool().take(kWeightsLease, host_.pool().free_count() - free_pages).has_value());
  }

  void come(ModelId id) {
    HEDDLE_CHECK(
        engine_->add_model(id, model_.spec, model_.layout, model_.window.base(), kKvLease));
    engine_->set_image_ready(id, model_.layout.bytes);
  }
  void leave_and_return() {
    engine_->remove_model(kHere);
    come(kHere);
  }

  [[nodiscard]] SequenceStart draw(std::uint64_t seed, ModelId id = kHere) const {
    Rng rng(seed);
    SequenceStart start{
        .id = SequenceId{seed}, .model = id, .prompt_tokens = kPromptTokens, .params = {}};
    start.params.max_tokens = kAnswerTokens;
    start.params.temperature = 0;
    start.params.ignore_eos = true;
    for (std::int64_t i = 0; i < kPromptTokens; ++i) {
      start.tokens.push_back(
          static_cast<TokenId>(rng.below(static_cast<std::uint64_t>(model_.spec.vocab))));
    }
    return start;
  }

  /// Adds it, and has it take what there is of it.
  std::int64_t begin(const SequenceStart& start, Duration computing = {}) {
    HEDDLE_CHECK(engine_->add_sequence(start));
    return engine_->take_prefix(start.id, computing);
  }
  /// Up to `most` tokens of a sequence that has so many computed.
  std::vector<TokenId> go_on(const SequenceStart& start,
                             std::int64_t computed,
                             std::int64_t most = kAnswerTokens) {
    std::vector<TokenId> said;
    std::int64_t pending = std::ssize(start.tokens) - computed;
    for (auto finish = FinishReason::kNone;
         finish == FinishReason::kNone && std::ssize(said) < most;) {
      const std::int64_t tokens = std::min<std::int64_t>(pending, 64);
      const auto outcome =
          engine_->run({.batches = {{.model = start.model,
                                     .slices = {{.sequence = start.id, .tokens = tokens}}}}});
      HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
      pending = std::max<std::int64_t>(pending - tokens, 1);
      if (const auto& token = outcome->results[0].token) {
        said.push_back(*token);
      }
      finish = outcome->results[0].finish;
    }
    return said;
  }
  std::vector<TokenId> say(const SequenceStart& start) {
    std::vector<TokenId> said = go_on(start, begin(start));
    engine_->remove_sequence(start.id);
    return said;
  }
  [[nodiscard]] std::uint64_t returned(ModelId id = kHere) const {
    const auto& counts = engine_->prefix_counts();
    return counts.contains(id) ? counts.at(id).host_tokens : 0;
  }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] TestHost& host() { return host_; }

 private:
  TestHost host_;
  LoadedModel model_;
  std::unique_ptr<Engine> engine_;
};

TEST(KeptKv, TextsAreTheSameAfterTheModelWasAway) {
  for (const std::string& name : golden_cases()) {
    for (const std::size_t page_bytes : {std::size_t{4096}, std::size_t{16384}}) {
      SCOPED_TRACE(name + ", pages of " + std::to_string(page_bytes));
      Keeper keeper(name, 32, page_bytes);
      const SequenceStart start = keeper.draw(7);
      const std::vector<TokenId> expected = keeper.say(start);
      ASSERT_EQ(std::ssize(expected), kAnswerTokens);
      keeper.leave_and_return();
      EXPECT_EQ(keeper.engine().cached_pages(), 0);
      EXPECT_GT(KeptKv(keeper.engine()).counts().held, 0);
      EXPECT_EQ(keeper.say(start), expected);
      EXPECT_GE(keeper.returned(), 48U);
      keeper.host().pool().check_invariants();
    }
  }
}

TEST(KeptKv, APreemptedSequenceGoesOnWhereOthersHadItsPages) {
  Keeper keeper("mistral-window", 40, 4096, 24);
  const SequenceStart first = keeper.draw(1);
  const std::vector<TokenId> expected = keeper.say(first);
  keeper.leave_and_return();
  KeptKv(keeper.engine()).forget(kHere);  // As if nothing had run.
  keeper.leave_and_return();
  SequenceStart again = first;
  again.id = SequenceId{100};
  ASSERT_EQ(keeper.begin(again), 0);
  std::vector<TokenId> said = keeper.go_on(again, 0, 5);
  keeper.engine().preempt(again.id);
  for (std::uint64_t seed = 2; seed < 6; ++seed) {  // Until all pages were theirs.
    (void)keeper.say(keeper.draw(seed));
  }
  const std::int64_t computed = keeper.engine().take_prefix(again.id);
  EXPECT_GE(computed, kPromptTokens / 2);
  EXPECT_GT(keeper.returned(), 0U);
  SequenceStart rest = again;
  rest.tokens.insert(rest.tokens.end(), said.begin(), said.end());
  const std::vector<TokenId> more = keeper.go_on(rest, computed);
  said.insert(said.end(), more.begin(), more.end());
  EXPECT_EQ(said, expected);
}

TEST(KeptKv, IsNobodyElses) {
  Keeper keeper("llama-gqa-sharded", 32);
  const SequenceStart start = keeper.draw(3);
  (void)keeper.say(start);
  keeper.leave_and_return();
  keeper.come(ModelId{2});
  SequenceStart salted = start;
  salted.cache_salt = "another";
  SequenceStart elsewhere = keeper.draw(3, ModelId{2});  // The same weights by another name.
  elsewhere.id = SequenceId{4};
  EXPECT_EQ(keeper.begin(elsewhere), 0);
  EXPECT_EQ(keeper.begin(salted), 0);
  EXPECT_EQ(keeper.returned(), 0U);
  EXPECT_EQ(keeper.returned(ModelId{2}), 0U);
}

TEST(KeptKv, IsForgottenWhereItIsWrong) {
  Keeper keeper("llama-gqa-sharded", 32);
  const SequenceStart start = keeper.draw(3);
  (void)keeper.say(start);
  KeptKv(keeper.engine()).forget(kHere);
  keeper.leave_and_return();
  EXPECT_EQ(KeptKv(keeper.engine()).counts().held, 0) << "the model's last pages as well";
  (void)keeper.say(start);
  keeper.leave_and_return();
  EXPECT_GT(KeptKv(keeper.engine()).counts().held, 0) << "of the model that came after it";
  KeptKv(keeper.engine()).forget(kHere);
  EXPECT_EQ(KeptKv(keeper.engine()).counts().held, 0);
  EXPECT_EQ(keeper.begin(start), 0);
}

TEST(KeptKv, IsComputedWhereThatIsQuicker) {
  Keeper keeper("llama-gqa-sharded", 32);
  const SequenceStart start = keeper.draw(3);
  (void)keeper.say(start);
  keeper.leave_and_return();
  const std::int64_t found = keeper.begin(start, std::chrono::hours(1));
  EXPECT_GT(found, 0);
  keeper.engine().remove_sequence(start.id);
  keeper.leave_and_return();
  EXPECT_EQ(keeper.begin(start, Duration{kPromptTokens}), 0) << "a token takes a nanosecond";
  EXPECT_EQ(KeptKv(keeper.engine()).counts().declined_tokens, static_cast<std::uint64_t>(found));
}

TEST(KeptKv, ThereIsNoneWithoutPagesForIt) {
  Keeper keeper("llama-gqa-sharded", 0);
  const SequenceStart start = keeper.draw(3);
  (void)keeper.say(start);
  keeper.leave_and_return();
  EXPECT_EQ(keeper.begin(start), 0);
  EXPECT_EQ(KeptKv(keeper.engine()).counts().pages, 0);
}

}  // namespace
}  // namespace heddle::engine
