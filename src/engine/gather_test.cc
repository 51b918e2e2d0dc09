// KV that comes from the stages of a pipeline to the whole model gives the bits that the whole
// model would have computed.

#include "engine/gather.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <span>
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

constexpr ModelId kWhole{4};
constexpr memory::OwnerId kWholeLease{77};
constexpr std::int64_t kFollowerPages = 200;

/// A pipeline, and the whole model beside its leader.
class Stages {
 public:
  Stages(const Source& source,
         DType dtype,
         std::vector<std::int64_t> ends,
         std::size_t bytes,
         spec::KvType kv = spec::KvType::kComputed)
      : count_(std::ssize(ends)) {
    spec::ModelSpec whole = source.spec;
    whole.kv = kv;
    for (std::int64_t i = 0; i < count_; ++i) {
      stages_.push_back(std::make_unique<StageEngine>(
          source, spec::stage_of(whole, {.index = i, .ends = ends}), dtype, true, bytes));
      HEDDLE_CHECK(i == 0 || pipes(i).reserve(kModel, kFollowerPages).has_value());
    }
    whole_.emplace(stages_.front()->host.load(source.tensors, whole, dtype));
    HEDDLE_CHECK(
        leader()
            .add_model(kWhole, whole_->spec, whole_->layout, whole_->window.base(), kWholeLease)
            .has_value());
    leader().set_image_ready(kWhole, whole_->layout.bytes);
  }

  Engine& leader() { return *stages_.front()->engine; }
  TestHost& leaders_host() { return stages_.front()->host; }
  Pipes pipes(std::int64_t i) { return stages_[static_cast<std::size_t>(i)]->engine->pipes(); }

  /// One step of one sequence, through all stages.
  SliceResult step(SequenceId id, std::int64_t tokens) {
    auto outcome = leader().run(
        {.batches = {{.model = kModel, .slices = {{.sequence = id, .tokens = tokens}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->sent.size() == 1);
    PipeBatch batch = std::move(outcome->sent.front());
    for (std::int64_t i = 1; i < count_; ++i) {
      HEDDLE_CHECK(pipes(i).run(batch).has_value());
    }
    auto finished = leader().pipes().finish(batch);
    HEDDLE_CHECK(finished.has_value() && finished->results.size() == 1);
    return std::move(finished->results.front());
  }

  /// Asks for what is computed; what is asked for stays away until round().
  GatherState ask(SequenceId id, std::int64_t tokens) {
    std::vector<KvPiece> pieces;
    const auto state = leader().pipes().gathers().ask(id, kWhole, tokens, pieces);
    HEDDLE_CHECK(state.has_value());
    std::ranges::move(pieces, std::back_inserter(away_));
    return *state;
  }
  /// The piece that was asked for first goes through all stages, but for the leader.
  KvPiece next() {
    KvPiece piece = std::move(away_.front());
    away_.pop_front();
    for (std::int64_t i = 1; i < count_; ++i) {
      HEDDLE_CHECK(
          stages_[static_cast<std::size_t>(i)]->engine->pipes().gathers().add(piece).has_value());
    }
    return piece;
  }
  std::optional<GatherState> round() {
    const auto state = leader().pipes().gathers().put(next());
    HEDDLE_CHECK(state.has_value());
    return *state;
  }
  /// Until all of it is there, or cannot be.
  GatherState gather(SequenceId id, std::int64_t tokens) {
    GatherState state = ask(id, tokens);
    while (!away_.empty()) {
      (void)round();
      state = ask(id, tokens);
    }
    return state;
  }
  [[nodiscard]] std::size_t away() const { return away_.size(); }

 private:
  std::int64_t count_;
  std::vector<std::unique_ptr<StageEngine>> stages_{};
  std::optional<LoadedModel> whole_{};
  std::deque<KvPiece> away_{};
};

/// Runs the rest of a sequence on one engine: its tokens, and what comes with them.
struct Answer {
  std::vector<TokenId> tokens{};
  std::vector<spec::TokenDetails> details{};
};

Answer finish_alone(Engine& engine, ModelId model, SequenceId id, std::int64_t pending) {
  Answer answer;
  for (auto finish = FinishReason::kNone; finish == FinishReason::kNone; pending = 1) {
    while (pending > kBatchTokens) {
      HEDDLE_CHECK(engine
                       .run({.batches = {{.model = model,
                                          .slices = {{.sequence = id, .tokens = kBatchTokens}}}}})
                       .has_value());
      pending -= kBatchTokens;
    }
    const auto outcome = engine.run(
        {.batches = {{.model = model, .slices = {{.sequence = id, .tokens = pending}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
    answer.tokens.push_back(*outcome->results[0].token);
    answer.details.push_back(outcome->results[0].details);
    finish = outcome->results[0].finish;
  }
  return answer;
}

bool has_windows(const spec::ModelSpec& spec) {
  return std::ranges::any_of(spec.window, [](std::int64_t window) { return window > 0; });
}

struct Counts {
  std::int64_t moved = 0;
  std::int64_t again = 0;
  std::int64_t pieces = 0;
};

/// A sequence begins in the stages, and goes on in the whole model from a place drawn by chance.
void move_one(Stages& stages,
              StageEngine& alone,
              Rng& rng,
              const spec::ModelSpec& spec,
              std::uint64_t id,
              Counts& counts) {
  const SequenceStart start = draw_start(rng, spec, id);
  SequenceStart whole = start;
  HEDDLE_CHECK(alone.engine->add_sequence(start).has_value());
  const Answer expected = finish_alone(*alone.engine, kModel, start.id, start.prompt_tokens);
  alone.engine->remove_sequence(start.id);

  HEDDLE_CHECK(stages.leader().add_sequence(start).has_value());
  const auto leave_at = static_cast<std::int64_t>(rng.below(expected.tokens.size()));
  std::int64_t computed = 0;
  for (std::int64_t made = 0; made < leave_at;) {
    const std::int64_t pending = std::ssize(whole.tokens) - computed;
    const auto most = static_cast<std::uint64_t>(std::min(pending, kBatchTokens));
    const SliceResult result =
        stages.step(start.id, static_cast<std::int64_t>(1 + rng.below(most)));
    computed = result.computed;
    if (result.token) {
      ASSERT_EQ(*result.token, expected.tokens[static_cast<std::size_t>(made)]);
      whole.tokens.push_back(*result.token);
      ++made;
    }
    if (rng.below(3) == 0) {
      (void)stages.ask(start.id, computed);
    }
    while (stages.away() > 0 && rng.below(3) != 0) {
      ASSERT_TRUE(stages.round());
      ++counts.pieces;
    }
  }
  const GatherState state = stages.gather(start.id, computed);
  ASSERT_FALSE(state.failed);
  EXPECT_EQ(state.there, computed);
  if (!has_windows(spec)) {
    EXPECT_EQ(state.usable, computed / state.block_tokens * state.block_tokens);
  }
  stages.leader().remove_sequence(start.id);
  whole.id = SequenceId{1000 + id};
  whole.model = kWhole;
  HEDDLE_CHECK(stages.leader().add_sequence(whole).has_value());
  const std::int64_t found = stages.leader().take_prefix(whole.id);
  EXPECT_EQ(found, state.usable);
  stages.leader().pipes().gathers().end(start.id);
  const Answer rest =
      finish_alone(stages.leader(), kWhole, whole.id, std::ssize(whole.tokens) - found);
  const auto from = static_cast<std::size_t>(leave_at);
  ASSERT_EQ(rest.tokens, std::vector(expected.tokens.begin() + leave_at, expected.tokens.end()));
  for (std::size_t i = 0; i < rest.details.size(); ++i) {
    ASSERT_EQ(rest.details[i].logprobs, expected.details[from + i].logprobs) << "token " << i;
  }
  stages.leader().remove_sequence(whole.id);
  counts.moved += found;
  counts.again += computed - found;
}

/// Several sequences of a model in so many stages.
void move_through(const Source& source,
                  DType dtype,
                  spec::KvType kv,
                  std::int64_t count,
                  std::uint64_t seed,
                  Counts& all) {
  Rng rng(seed);
  SCOPED_TRACE(testing::Message() << source.name << ", " << count << " stages, seed " << seed);
  spec::ModelSpec model = source.spec;
  model.kv = kv;
  StageEngine alone(source, model, dtype, false);
  const std::size_t bytes = rng.below(2) == 0 ? std::size_t{1} << 12U : std::size_t{1} << 16U;
  Stages stages(source, dtype, spec::cut_layers(model, dtype, count).value(), bytes, kv);
  for (std::uint64_t id = 1; id <= 6 && !testing::Test::HasFailure(); ++id) {
    move_one(stages, alone, rng, model, id, all);
  }
  EXPECT_EQ(stages.leader().kv_pages(kWhole), 0);
}

void move_many(DType dtype) {
  std::uint64_t seed = 0;
  Counts all;
  for (const Source& source : sources()) {
    for (std::int64_t count = 2; count <= std::min<std::int64_t>(4, source.spec.layers); ++count) {
      move_through(source, dtype, spec::KvType::kComputed, count, ++seed, all);
      if (testing::Test::HasFailure()) {
        return;
      }
    }
  }
  EXPECT_GT(all.moved, 1000);
  EXPECT_GT(all.moved, 2 * all.again) << "windows lose some";
  EXPECT_GT(all.pieces, 100);
}

TEST(Gather, BitsAreTheWholeModelsOverKvInCodes) {
  Counts all;
  for (std::size_t i = 0; i < sources().size(); i += 3) {
    const Source& source = sources()[i];
    const std::int64_t stages = std::min<std::int64_t>(3, source.spec.layers);
    const spec::KvType kv = i % 2 == 0 ? spec::KvType::kI8 : spec::KvType::kF8;
    move_through(source, DType::kBf16, kv, stages, 100 + i, all);
  }
  EXPECT_GT(all.moved, 200);
}

TEST(Gather, BitsAreTheWholeModelsInFloat32) {
  move_many(DType::kF32);
}

TEST(Gather, BitsAreTheWholeModelsInBfloat16) {
  move_many(DType::kBf16);
}

TEST(Gather, BitsAreTheWholeModelsInInt8) {
  move_many(DType::kI8);
}

/// Two stages of a model, and a sequence of which 60 tokens are computed.
class GatherOfTwo : public testing::Test {
 protected:
  GatherOfTwo() {
    add(1);
    EXPECT_EQ(stages_.step(kId, 60).computed, 60);
  }

  void add(std::uint64_t id) {
    SequenceStart start{.id = SequenceId{id}, .model = kModel, .prompt_tokens = 60};
    for (TokenId i = 0; i < 60; ++i) {
      start.tokens.push_back(i);
    }
    start.params.max_tokens = 9;
    HEDDLE_CHECK(stages_.leader().add_sequence(std::move(start)).has_value());
  }
  /// Of the 60 tokens, and one more.
  std::int64_t found_by_whole(std::uint64_t id) {
    SequenceStart start{.id = SequenceId{id}, .model = kWhole, .prompt_tokens = 61};
    for (TokenId i = 0; i <= 60; ++i) {
      start.tokens.push_back(i);
    }
    start.params.max_tokens = 9;
    HEDDLE_CHECK(stages_.leader().add_sequence(std::move(start)).has_value());
    const std::int64_t found = stages_.leader().take_prefix(SequenceId{id});
    stages_.leader().remove_sequence(SequenceId{id});
    return found;
  }

  static constexpr SequenceId kId{1};
  /// All layers see all positions; eight pieces are a few positions each.
  Stages stages_{sources().back(), DType::kF32, {1, 5}, std::size_t{8} * 3000};
};

TEST_F(GatherOfTwo, NoMoreIsAwayThanMayBe) {
  EXPECT_LT(stages_.ask(kId, 60).asked, 60);
  EXPECT_EQ(stages_.away(), kGatherPieces);
  (void)stages_.ask(kId, 60);
  EXPECT_EQ(stages_.away(), kGatherPieces) << "the same again is not asked for twice";
  const auto state = stages_.round();
  ASSERT_TRUE(state);
  EXPECT_GT(state->there, 0);
  (void)stages_.ask(kId, 60);
  EXPECT_EQ(stages_.away(), kGatherPieces);
}

TEST_F(GatherOfTwo, WhatHasComeIsHeldUntilItEnds) {
  const GatherState state = stages_.gather(kId, 60);
  ASSERT_GT(state.usable, 0);
  Engine& leader = stages_.leader();
  leader.remove_sequence(kId);
  leader.trim_cached(0, ledger::DropReason::kKv);
  EXPECT_EQ(found_by_whole(9), state.usable);
  EXPECT_GT(leader.kv_pages(kWhole), 0);
  leader.pipes().gathers().end(kId);
  EXPECT_EQ(leader.kv_pages(kWhole), 0);
  EXPECT_EQ(found_by_whole(10), state.usable) << "it is cached";
  leader.trim_cached(0, ledger::DropReason::kKv);
  EXPECT_EQ(found_by_whole(11), 0);
}

TEST_F(GatherOfTwo, AnotherOfTheSameTokensAsksForNothing) {
  const GatherState first = stages_.gather(kId, 60);
  add(2);
  EXPECT_EQ(stages_.step(SequenceId{2}, 60).computed, 60);
  const GatherState second = stages_.ask(SequenceId{2}, first.usable);
  EXPECT_EQ(second.there, first.usable);
  EXPECT_EQ(stages_.away(), 0U);
}

TEST_F(GatherOfTwo, AStageThatHasForgottenItRefuses) {
  (void)stages_.ask(kId, 60);
  ASSERT_TRUE(stages_.pipes(1).reserve(kModel, kFollowerPages));  // Another pipeline begins.
  const auto state = stages_.round();
  ASSERT_TRUE(state);
  EXPECT_TRUE(state->failed);
  EXPECT_EQ(found_by_whole(9), 0);
}

TEST_F(GatherOfTwo, WhatIsLateIsForNobody) {
  (void)stages_.ask(kId, 60);
  stages_.leader().pipes().gathers().end(kId);
  EXPECT_FALSE(stages_.round());
  (void)stages_.ask(kId, 60);
  EXPECT_FALSE(stages_.round()) << "it is of the gather before";
}

TEST_F(GatherOfTwo, WhatWasNotAskedForIsRefused) {
  for (int wrong = 0; wrong < 5; ++wrong) {
    (void)stages_.ask(kId, 60);
    KvPiece piece = stages_.next();
    switch (wrong) {
      case 0:
        piece.bytes.pop_back();
        break;
      case 1:
        piece.from.pop_back();
        break;
      case 2:
        piece.from.front() = -1;
        break;
      case 3:
        piece.from.front() = piece.end + 1;
        break;
      default:
        ++piece.end;
    }
    const auto put = stages_.leader().pipes().gathers().put(piece);
    ASSERT_FALSE(put) << wrong;
    EXPECT_EQ(put.error().code, Code::kCorrupt);
    stages_.leader().pipes().gathers().end(kId);
    while (stages_.away() > 0) {
      EXPECT_FALSE(stages_.round());
    }
  }
}

TEST_F(GatherOfTwo, WherePagesLackNothingChanges) {
  memory::PagePool& pool = stages_.leaders_host().pool();
  const std::int64_t free = pool.free_count();
  auto taken = pool.take(kWeightsLease, free);
  ASSERT_TRUE(taken);
  EXPECT_TRUE(stages_.ask(kId, 60).failed);
  EXPECT_EQ(stages_.away(), 0U);
  stages_.leader().pipes().gathers().end(kId);
  pool.put(kWeightsLease, *taken);
  EXPECT_EQ(pool.free_count(), free);
  EXPECT_EQ(stages_.gather(kId, 60).there, 60);
}

TEST_F(GatherOfTwo, AWholeModelThatGoesTakesAllWithIt) {
  (void)stages_.ask(kId, 60);
  stages_.leader().remove_model(kWhole);
  EXPECT_FALSE(stages_.round());
  EXPECT_FALSE(stages_.step(kId, 1).finish != FinishReason::kNone) << "the stages go on";
}

}  // namespace
}  // namespace heddle::engine
