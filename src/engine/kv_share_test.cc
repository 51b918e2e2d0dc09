// KV that one engine has from another gives the bits that it would have computed itself.

#include "engine/kv_share.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/pipe.h"
#include "engine/pipe_rig.h"
#include "spec/pipe_stage.h"

namespace heddle::engine {
namespace {

using spec::DType;
using spec::FinishReason;

/// What came of a sequence.
struct Answer {
  std::vector<TokenId> tokens{};
  std::vector<spec::TokenDetails> details{};
};

/// Runs a sequence that lacks `pending` positions, to its end or for so many tokens.
Answer run(Engine& engine, SequenceId id, std::int64_t pending, std::size_t most = SIZE_MAX) {
  Answer answer;
  for (auto finish = FinishReason::kNone;
       finish == FinishReason::kNone && answer.tokens.size() < most;) {
    const std::int64_t tokens = std::min(pending, kBatchTokens);
    const auto outcome = engine.run(
        {.batches = {{.model = kModel, .slices = {{.sequence = id, .tokens = tokens}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    pending = std::max<std::int64_t>(pending - tokens, 1);
    if (outcome->results[0].token) {
      answer.tokens.push_back(*outcome->results[0].token);
      answer.details.push_back(outcome->results[0].details);
    }
    finish = outcome->results[0].finish;
  }
  return answer;
}

/// Has the engine fetch what it wants of these, until no more is to be had, or for so many rounds.
/// How many tokens have KV then.
std::int64_t fetch(Engine& engine,
                   SequenceId id,
                   const std::vector<Engine*>& sources,
                   std::int64_t rounds = INT64_MAX) {
  KvHave have;
  for (; !have.done && rounds > 0; --rounds) {
    const std::optional<KvWanted> wanted = KvShares(engine).wanted(id);
    if (!wanted) {
      break;
    }
    std::vector<KvPart> parts;
    for (Engine* source : sources) {
      parts.push_back(KvShares(*source).give(*wanted).value());
    }
    std::ranges::reverse(parts);
    have = KvShares(engine).put(id, std::move(parts)).value();
  }
  return KvShares(engine).end(id);
}

/// Requests of a model begin on one engine and go on on another. How many tokens have moved.
std::int64_t move_requests(const Source& source,
                           DType dtype,
                           std::uint64_t seed,
                           spec::KvType kv = spec::KvType::kComputed) {
  std::int64_t moved = 0;
  spec::ModelSpec model = source.spec;
  model.kv = kv;
  [&] {  // For ASSERT.
    Rng rng(seed);
    StageEngine alone(source, model, dtype, false);
    StageEngine one(source, model, dtype, true);
    StageEngine other(source, model, dtype, true);
    for (std::uint64_t id = 1; id <= 8; ++id) {
      const SequenceStart start = draw_start(rng, source.spec, id);
      ASSERT_TRUE(alone.engine->add_sequence(start));
      const Answer expected = run(*alone.engine, start.id, start.prompt_tokens);
      alone.engine->remove_sequence(start.id);

      SequenceStart there = start;
      ASSERT_TRUE(one.engine->add_sequence(start));
      const std::size_t leave_at = rng.below(expected.tokens.size());
      if (leave_at > 0) {
        const std::int64_t found = one.engine->take_prefix(start.id);
        const Answer begun = run(*one.engine, start.id, start.prompt_tokens - found, leave_at);
        there.tokens.insert(there.tokens.end(), begun.tokens.begin(), begun.tokens.end());
      }
      one.engine->remove_sequence(start.id);

      ASSERT_TRUE(other.engine->add_sequence(there));
      (void)other.engine->take_prefix(there.id);
      const std::int64_t rounds = rng.below(4) == 0 ? 1 : INT64_MAX;
      const std::int64_t have = fetch(*other.engine, there.id, {one.engine.get()}, rounds);
      ASSERT_LT(have, std::ssize(there.tokens));
      moved += have;
      const Answer rest = run(*other.engine, there.id, std::ssize(there.tokens) - have);
      const auto from = static_cast<std::ptrdiff_t>(leave_at);
      ASSERT_EQ(rest.tokens, std::vector(expected.tokens.begin() + from, expected.tokens.end()));
      for (std::size_t i = 0; i < rest.details.size(); ++i) {
        ASSERT_EQ(rest.details[i].logprobs, expected.details[leave_at + i].logprobs);
      }
      other.engine->remove_sequence(there.id);
    }
  }();
  return moved;
}

/// A request runs on one engine, and goes on on another with its KV.
class Moves : public testing::TestWithParam<DType> {};

TEST_P(Moves, ASequenceGoesOnElsewhereWithTheSameBits) {
  std::uint64_t seed = 0;
  std::int64_t moved = 0;
  for (const Source& source : sources()) {
    SCOPED_TRACE(testing::Message() << source.name << ", seed " << ++seed);
    moved += move_requests(source, GetParam(), seed);
  }
  EXPECT_GT(moved, 1000);
}

TEST_P(Moves, StatesOfHybridsGoWithTheirKv) {
  std::uint64_t seed = 100;
  std::int64_t moved = 0;
  for (const Source& source : golden_sources(/*states=*/true)) {
    SCOPED_TRACE(testing::Message() << source.name << ", seed " << ++seed);
    moved += move_requests(source, GetParam(), seed);
  }
  EXPECT_GT(moved, 500);
}

INSTANTIATE_TEST_SUITE_P(Types, Moves, testing::Values(DType::kF32, DType::kBf16, DType::kI8));

TEST(KvShares, KvInCodesGoesOnElsewhereWithTheSameBits) {
  std::int64_t moved = 0;
  for (std::size_t i = 0; i < sources().size(); i += 3) {
    SCOPED_TRACE(sources()[i].name);
    const spec::KvType kv = i % 2 == 0 ? spec::KvType::kI8 : spec::KvType::kF8;
    moved += move_requests(sources()[i], DType::kBf16, 200 + i, kv);
  }
  EXPECT_GT(moved, 100);
}

/// The first model without windows, and one whose windows slide.
const Source& plain_model() {
  return *std::ranges::find_if(sources(), [](const Source& source) {
    return source.spec.layers == 5 && std::ranges::count(source.spec.window, 0) == 5;
  });
}
const Source& sliding_model() {
  return *std::ranges::find_if(sources(), [](const Source& source) {
    return source.spec.layers == 5 && std::ranges::count(source.spec.window, 0) == 0;
  });
}

SequenceStart long_prompt(std::uint64_t id, std::int64_t tokens = 100) {
  SequenceStart start{.id = SequenceId{id}, .model = kModel, .prompt_tokens = tokens};
  for (std::int64_t i = 0; i < tokens; ++i) {
    start.tokens.push_back(static_cast<TokenId>((i * 7) % 31));
  }
  start.params.max_tokens = 8;
  return start;
}

struct Two {
  explicit Two(const Source& source)
      : one(source, source.spec, DType::kF32, true),
        other(source, source.spec, DType::kF32, true) {}
  /// Pages that KV has on either.
  [[nodiscard]] static std::int64_t kv_pages(StageEngine& engine) {
    return engine.engine->kv_pages(kModel) + engine.engine->cached_pages();
  }
  StageEngine one;
  StageEngine other;
};

TEST(KvShares, NothingIsHeldForWhatIsGiven) {
  Two two(plain_model());
  ASSERT_TRUE(two.one.engine->add_sequence(long_prompt(1)));
  (void)run(*two.one.engine, SequenceId(1), 100, 3);
  two.one.engine->remove_sequence(SequenceId(1));
  ASSERT_TRUE(two.other.engine->add_sequence(long_prompt(2)));
  const KvWanted wanted = KvShares(*two.other.engine).wanted(SequenceId(2)).value();
  EXPECT_EQ(wanted.begin, 0);
  EXPECT_EQ(wanted.end, 99) << "the last token is left to compute";
  EXPECT_GT(KvShares(*two.one.engine).give(wanted)->end, 0);
  two.one.engine->trim_cached(0, ledger::DropReason::kBound);
  EXPECT_EQ(Two::kv_pages(two.one), 0);
  const KvPart gone = KvShares(*two.one.engine).give(wanted).value();
  EXPECT_EQ(gone.end, 0);
  EXPECT_TRUE(gone.bytes.empty());
}

TEST(KvShares, OfAnotherSaltOrModelThereIsNothing) {
  Two two(plain_model());
  ASSERT_TRUE(two.one.engine->add_sequence(long_prompt(1)));
  (void)run(*two.one.engine, SequenceId(1), 100, 3);
  ASSERT_TRUE(two.other.engine->add_sequence(long_prompt(2)));
  KvWanted wanted = KvShares(*two.other.engine).wanted(SequenceId(2)).value();
  EXPECT_GT(KvShares(*two.one.engine).give(wanted)->end, 0) << "of one that still runs";
  wanted.cache_salt = "another";
  EXPECT_EQ(KvShares(*two.one.engine).give(wanted)->end, 0);
  wanted.cache_salt.clear();
  wanted.model = ModelId{99};
  EXPECT_EQ(KvShares(*two.one.engine).give(wanted)->end, 0);
  wanted.model = kModel;
  wanted.begin = -3;
  EXPECT_TRUE(KvShares(*two.one.engine).give(wanted)->bytes.empty());
}

TEST(KvShares, PartsThatDoNotFitAreOfNoUse) {
  for (int wrong = 0; wrong < 6; ++wrong) {
    Two two(plain_model());
    ASSERT_TRUE(two.one.engine->add_sequence(long_prompt(1)));
    (void)run(*two.one.engine, SequenceId(1), 100, 3);
    ASSERT_TRUE(two.other.engine->add_sequence(long_prompt(2)));
    const KvWanted wanted = KvShares(*two.other.engine).wanted(SequenceId(2)).value();
    KvPart part = KvShares(*two.one.engine).give(wanted).value();
    std::vector<KvPart> parts{part};
    switch (wrong) {
      case 0:
        parts[0].bytes.pop_back();
        break;
      case 1:
        parts[0].from.pop_back();
        break;
      case 2:
        parts[0].first_layer = 1;
        break;
      case 3:
        parts[0].begin = parts[0].from[0] = 1;
        break;
      case 4:
        parts.push_back(part);
        break;
      default:
        parts.clear();
    }
    const KvHave have = KvShares(*two.other.engine).put(SequenceId(2), parts).value();
    EXPECT_TRUE(have.done) << wrong;
    EXPECT_EQ(have.computed, 0) << wrong;
    EXPECT_EQ(run(*two.other.engine, SequenceId(2), 100).tokens.size(), 8U);
  }
}

TEST(KvShares, WhereWindowsHaveSlidNothingLessThanAllOfItIsOfUse) {
  Two two(sliding_model());
  ASSERT_TRUE(two.one.engine->add_sequence(long_prompt(1)));
  (void)run(*two.one.engine, SequenceId(1), 100, 3);
  ASSERT_TRUE(two.other.engine->add_sequence(long_prompt(2)));
  KvWanted wanted = KvShares(*two.other.engine).wanted(SequenceId(2)).value();
  wanted.end = 60;
  const KvHave have = KvShares(*two.other.engine)
                          .put(SequenceId(2), {KvShares(*two.one.engine).give(wanted).value()})
                          .value();
  EXPECT_FALSE(have.done);
  EXPECT_EQ(have.computed, 0);
  EXPECT_EQ(KvShares(*two.other.engine).end(SequenceId(2)), 0);
  EXPECT_EQ(Two::kv_pages(two.other), 0);
  const std::int64_t all = fetch(*two.other.engine, SequenceId(2), {two.one.engine.get()});
  EXPECT_GT(all, 90);
  EXPECT_EQ(run(*two.other.engine, SequenceId(2), 100 - all).tokens.size(), 8U);
}

TEST(KvShares, AHybridFetchesWhatItLacksBehindWhatItFound) {
  const std::vector<Source> hybrids = golden_sources(/*states=*/true);
  ASSERT_FALSE(hybrids.empty());
  for (const Source& source : hybrids) {
    SCOPED_TRACE(source.name);
    Two two(source);
    StageEngine alone(source, source.spec, DType::kF32, false);
    SequenceStart whole = long_prompt(1);
    for (TokenId& token : whole.tokens) {
      token %= static_cast<TokenId>(source.spec.vocab);
    }
    ASSERT_TRUE(alone.engine->add_sequence(whole));
    const Answer expected = run(*alone.engine, whole.id, 100);
    ASSERT_TRUE(two.one.engine->add_sequence(whole));
    (void)run(*two.one.engine, whole.id, 100);
    two.one.engine->remove_sequence(whole.id);

    SequenceStart begun = whole;  // Whose prompt is the beginning of that.
    begun.tokens.resize(50);
    begun.prompt_tokens = 50;
    ASSERT_TRUE(two.other.engine->add_sequence(begun));
    (void)run(*two.other.engine, begun.id, 50, 1);
    two.other.engine->remove_sequence(begun.id);
    whole.id = SequenceId{2};
    ASSERT_TRUE(two.other.engine->add_sequence(whole));
    const std::int64_t found = two.other.engine->take_prefix(whole.id);
    EXPECT_GE(found, 24);
    // Nothing of it is of use before all has come.
    EXPECT_EQ(fetch(*two.other.engine, whole.id, {two.one.engine.get()}, 1), found);
    const std::int64_t have = fetch(*two.other.engine, whole.id, {two.one.engine.get()});
    EXPECT_GT(have, found);
    EXPECT_EQ(run(*two.other.engine, whole.id, 100 - have).tokens, expected.tokens);
    two.other.engine->remove_sequence(whole.id);
    EXPECT_EQ(two.other.engine->kv_pages(kModel), 0);
  }
}

TEST(KvShares, ASequenceThatGoesForgetsWhatItFetched) {
  Two two(plain_model());
  ASSERT_TRUE(two.one.engine->add_sequence(long_prompt(1)));
  (void)run(*two.one.engine, SequenceId(1), 100, 3);
  ASSERT_TRUE(two.other.engine->add_sequence(long_prompt(2)));
  EXPECT_GT(fetch(*two.other.engine, SequenceId(2), {two.one.engine.get()}), 90);
  two.other.engine->preempt(SequenceId(2));
  EXPECT_GT(two.other.engine->take_prefix(SequenceId(2)), 90) << "it stays as a cached prefix";
  two.other.engine->remove_sequence(SequenceId(2));
  two.other.engine->trim_cached(0, ledger::DropReason::kBound);
  EXPECT_EQ(Two::kv_pages(two.other), 0);
}

TEST(KvShares, StagesOfAPipelineGiveTheirLayersTogether) {
  for (const Source& source : sources()) {
    const auto ends = spec::cut_layers(source.spec, DType::kF32, 2);
    if (source.spec.layers < 2 || !ends) {
      continue;
    }
    SCOPED_TRACE(source.name);
    StageEngine first(
        source, spec::stage_of(source.spec, {.index = 0, .ends = *ends}), DType::kF32, true);
    StageEngine second(
        source, spec::stage_of(source.spec, {.index = 1, .ends = *ends}), DType::kF32, true);
    ASSERT_TRUE(second.engine->pipes().reserve(kModel, 200));
    const std::int64_t length = std::min<std::int64_t>(60, source.spec.max_position - 12);
    ASSERT_TRUE(first.engine->add_sequence(long_prompt(1, length)));
    auto sent = first.engine->run(
        {.batches = {
             {.model = kModel, .slices = {{.sequence = SequenceId(1), .tokens = length}}}}});
    ASSERT_EQ(sent->sent.size(), 1U);
    ASSERT_TRUE(second.engine->pipes().run(sent->sent.front()));
    ASSERT_TRUE(first.engine->pipes().finish(sent->sent.front()));
    first.engine->remove_sequence(SequenceId(1));

    StageEngine whole(source, source.spec, DType::kF32, true);
    StageEngine alone(source, source.spec, DType::kF32, false);
    ASSERT_TRUE(whole.engine->add_sequence(long_prompt(2, length)));
    const std::int64_t have =
        fetch(*whole.engine, SequenceId(2), {first.engine.get(), second.engine.get()});
    EXPECT_GT(have, 0);
    ASSERT_TRUE(alone.engine->add_sequence(long_prompt(2, length)));
    EXPECT_EQ(run(*whole.engine, SequenceId(2), length - have).tokens,
              run(*alone.engine, SequenceId(2), length).tokens);
  }
}

}  // namespace
}  // namespace heddle::engine
