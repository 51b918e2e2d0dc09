// Engines joined to a pipeline by queues give the bits of one engine that has the whole model.

#include "engine/pipe.h"

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "engine/engine.h"
#include "engine/pipe_rig.h"
#include "spec/pipe_stage.h"
#include "text/test_model_directory.h"

namespace heddle::engine {
namespace {

using spec::DType;
using spec::FinishReason;
using spec::ModelSpec;

struct Request {
  SequenceStart start{};
  std::vector<TokenId> expected{};
  std::vector<spec::TokenDetails> details{};
  std::int64_t computed = 0;
  bool admitted = false;
  bool away = false;
  bool packed = false;  ///< A follower had refused it: it takes no prefix any more.

  [[nodiscard]] bool done() const {
    return static_cast<std::size_t>(start.prompt_tokens) + expected.size() == start.tokens.size();
  }
  [[nodiscard]] std::int64_t pending() const {
    return static_cast<std::int64_t>(start.tokens.size()) - computed;
  }
};

struct Counts {
  int starved = 0;
  int refused = 0;
  int together = 0;  ///< Times that several batches were away.
  std::uint64_t hit_tokens = 0;
};

class Schedule {
 public:
  Schedule(std::uint64_t seed, const Source& source, std::int64_t stages, DType dtype)
      : rng_(seed), spec_(source.spec), queues_(static_cast<std::size_t>(stages)) {
    vocabulary_ = text::GrammarVocabulary::make(*text_, spec_.vocab).value();
    for (std::vector<TokenId>& text : texts_) {
      for (int n = 0; n < 40; ++n) {
        text.push_back(draw_token());
      }
    }
    for (std::uint64_t id = 1; id <= 5; ++id) {
      requests_.push_back(draw_request(id));
    }
    {
      StageEngine whole(source, spec_, dtype, false);
      for (Request& request : requests_) {
        run_alone(*whole.engine, request);
      }
    }
    std::vector<std::int64_t> ends = spec::cut_layers(spec_, dtype, stages).value();
    if (stages == 2) {  // Anywhere.
      ends[0] =
          static_cast<std::int64_t>(1 + rng_.below(static_cast<std::uint64_t>(spec_.layers) - 1));
    }
    for (std::int64_t i = 0; i < stages; ++i) {
      stages_.push_back(std::make_unique<StageEngine>(
          source, spec::stage_of(spec_, {.index = i, .ends = ends}), dtype, true));
      StageEngine& stage = *stages_.back();
      std::int64_t most = 0;
      for (const Request& request : requests_) {
        most = std::max(most, stage.engine->kv_pages_for(kModel, longest(request)));
      }
      most += static_cast<std::int64_t>(1 + rng_.below(6));
      const std::int64_t taken = stage.host.pool().free_count() - most;
      HEDDLE_CHECK(stage.host.pool().take(kWeightsLease, taken).has_value());
      if (i > 0) {
        HEDDLE_CHECK(stage.engine->pipes().reserve(kModel, most).has_value());
      }
    }
  }

  void run() {
    for (int step = 0; step < 20'000; ++step) {
      shake();
      if (rng_.below(3) == 0) {
        plan();
      } else {
        pass_on(rng_.below(stages_.size()));
      }
      if (testing::Test::HasFailure()) {
        return;
      }
      const bool all = std::ranges::all_of(requests_, [](const Request& r) { return r.done(); });
      if (all && away() == 0) {
        EXPECT_EQ(leader().kv_pages(kModel), 0);
        for (const auto& [id, counts] : leader().prefix_counts()) {
          counts_.hit_tokens += counts.hit_tokens;
        }
        return;
      }
    }
    FAIL() << "no end in 20,000 steps";
  }

  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  Engine& leader() { return *stages_.front()->engine; }
  [[nodiscard]] static std::int64_t longest(const Request& request) {
    return request.start.prompt_tokens + std::ssize(request.expected);
  }
  [[nodiscard]] std::size_t away() const {
    std::size_t batches = 0;
    for (const auto& queue : queues_) {
      batches += queue.size();
    }
    return batches;
  }

  TokenId draw_token() {
    return static_cast<TokenId>(rng_.below(static_cast<std::uint64_t>(spec_.vocab)));
  }

  Request draw_request(std::uint64_t id) {
    Request request;
    request.start.id = SequenceId{id};
    request.start.model = kModel;
    request.start.prompt_tokens = static_cast<std::int64_t>(1 + rng_.below(60));
    const std::vector<TokenId>& text = texts_.at(rng_.below(2));
    const std::uint64_t parts = rng_.below(3) != 0 ? 40 : rng_.below(40);
    for (std::uint64_t i = 0; std::cmp_less(i, request.start.prompt_tokens); ++i) {
      request.start.tokens.push_back(i < std::min<std::uint64_t>(parts, 40) ? text[i]
                                                                            : draw_token());
    }
    request.start.cache_salt = rng_.below(5) == 0 ? "another" : "";
    spec::SamplingParams& params = request.start.params;
    params.max_tokens = static_cast<std::int64_t>(1 + rng_.below(16));
    params.temperature = rng_.below(3) == 0 ? 0.0F : 0.9F;
    params.top_p = rng_.below(2) == 0 ? 1.0F : 0.9F;
    params.frequency_penalty = rng_.below(2) == 0 ? 0.0F : 0.5F;
    params.repetition_penalty = rng_.below(2) == 0 ? 1.0F : 1.1F;
    params.seed = rng_.next();
    params.logprobs = static_cast<std::int32_t>(rng_.below(3)) - 1;
    if (rng_.below(3) == 0) {
      params.grammar = {.kind = spec::GrammarKind::kRegex, .text = "[A-Z]{2,9}(ab|a|[c-z]{1,5}_)*"};
    }
    if (rng_.below(6) == 0) {
      params = {.max_tokens = 1,
                .pooling = rng_.below(2) == 0 ? spec::Pooling::kMean : spec::Pooling::kLast};
    }
    return request;
  }

  SequenceStart fresh_start(const Request& request) {
    SequenceStart start = request.start;
    if (start.params.grammar.constrains()) {
      start.grammar = text::GrammarMatcher::open(vocabulary_, start.params.grammar).value();
    }
    return start;
  }

  void run_alone(Engine& engine, Request& request) {
    HEDDLE_CHECK(engine.add_sequence(fresh_start(request)).has_value());
    std::int64_t pending = request.start.prompt_tokens;
    for (auto finish = FinishReason::kNone; finish == FinishReason::kNone; pending = 1) {
      const auto outcome = engine.run(
          {.batches = {
               {.model = kModel, .slices = {{.sequence = request.start.id, .tokens = pending}}}}});
      HEDDLE_CHECK(outcome.has_value() && outcome->results.size() == 1);
      request.expected.push_back(*outcome->results[0].token);
      request.details.push_back(outcome->results[0].details);
      finish = outcome->results[0].finish;
    }
    engine.remove_sequence(request.start.id);
  }

  void preempt(Request& request) {
    leader().preempt(request.start.id);
    request.computed = 0;
    request.away = false;
  }

  /// Admits, preempts and drops sequences at random, those too that are away.
  void shake() {
    for (Request& request : requests_) {
      if (!request.admitted && !request.done() && rng_.below(8) == 0) {
        HEDDLE_CHECK(leader().add_sequence(fresh_start(request)).has_value());
        request.admitted = true;
        request.computed = 0;
      } else if (request.admitted && rng_.below(150) == 0) {
        preempt(request);
      } else if (request.admitted && rng_.below(150) == 0) {
        leader().remove_sequence(request.start.id);
        request.admitted = request.away = false;
      }
      if (request.admitted && !request.away && request.computed == 0 && !request.packed &&
          rng_.below(3) != 0) {
        request.computed = leader().take_prefix(request.start.id);
      }
    }
  }

  void plan() {
    policy::ModelBatch batch{.model = kModel, .slices = {}};
    std::int64_t left = kBatchTokens;
    for (const Request& request : requests_) {
      if (!request.admitted || request.away || (alone_ && *alone_ != request.start.id)) {
        continue;
      }
      if (rng_.below(2) != 0 && left > 0) {
        const auto most = static_cast<std::uint64_t>(std::min(request.pending(), left));
        batch.slices.push_back({.sequence = request.start.id,
                                .tokens = static_cast<std::int64_t>(1 + rng_.below(most))});
        left -= batch.slices.back().tokens;
      }
    }
    if (batch.slices.empty()) {
      return;
    }
    auto outcome = leader().run({.batches = {batch}});
    ASSERT_TRUE(outcome) << outcome.error().message;
    ASSERT_TRUE(outcome->failed.empty() && outcome->unready.empty() && outcome->results.empty());
    for (PipeBatch& sent : outcome->sent) {
      for (const PipeSlice& slice : sent.slices) {
        requests_[slice.sequence.value() - 1].away = true;
      }
      queues_[0].push_back(std::move(sent));
    }
    counts_.together += away() > 1 ? 1 : 0;
    counts_.starved += static_cast<int>(outcome->starved.size());
    if (!outcome->starved.empty()) {
      make_room(outcome->starved.front());
    }
  }

  /// The batch in front of stage `at` + 1 goes through it, or through the end of the leader.
  void pass_on(std::size_t at) {
    if (queues_[at].empty()) {
      return;
    }
    PipeBatch batch = std::move(queues_[at].front());
    queues_[at].pop_front();
    if (at + 1 < stages_.size()) {
      const auto done = stages_[at + 1]->engine->pipes().run(batch);
      ASSERT_TRUE(done) << done.error().message;
      queues_[at + 1].push_back(std::move(batch));
      return;
    }
    const auto outcome = leader().pipes().finish(batch);
    ASSERT_TRUE(outcome) << outcome.error().message;
    for (const SliceResult& result : outcome->results) {
      take(result);
    }
    for (const SequenceId id : outcome->refused) {
      Request& request = requests_[id.value() - 1];
      ASSERT_FALSE(alone_ && *alone_ == id && request.packed) << "alone it has pages enough";
      preempt(request);
      request.packed = true;
      ++counts_.refused;
    }
    if (!outcome->refused.empty()) {
      make_room(outcome->refused.front());
    }
  }

  void take(const SliceResult& result) {
    Request& request = requests_[result.sequence.value() - 1];
    ASSERT_TRUE(request.away);
    request.away = false;
    request.computed = result.computed;
    if (!result.token.has_value()) {
      return;
    }
    const auto position = static_cast<std::size_t>(result.position);
    ASSERT_LT(position, request.expected.size());
    ASSERT_EQ(request.start.prompt_tokens + result.position, std::ssize(request.start.tokens));
    ASSERT_EQ(*result.token, request.expected[position])
        << "token " << position << " of sequence " << result.sequence.value();
    ASSERT_EQ(result.details.logprobs, request.details[position].logprobs);
    ASSERT_EQ(result.details.embedding, request.details[position].embedding);
    request.start.tokens.push_back(*result.token);
    EXPECT_EQ(result.finish != FinishReason::kNone, request.done());
    if (request.done()) {
      leader().remove_sequence(request.start.id);
      request.admitted = false;
      alone_ = alone_ == request.start.id ? std::nullopt : alone_;
    }
  }

  /// Now and then all but the one that lacked pages have to make room, until it is done.
  void make_room(SequenceId lacking) {
    const bool for_good = rng_.below(4) == 0;
    for (Request& request : requests_) {
      if (request.admitted && request.start.id != lacking && (for_good || rng_.below(2) == 0)) {
        preempt(request);
      }
    }
    Request& alone = requests_[lacking.value() - 1];
    if (for_good && !alone_ && alone.admitted) {
      preempt(alone);
      alone.packed = true;
      alone_ = lacking;
    }
  }

  Rng rng_;
  ModelSpec spec_;
  text::ByteModelDirectory directory_{'A', 62};
  std::shared_ptr<const text::TextModel> text_ = text::TextModel::open(directory_.path()).value();
  std::shared_ptr<const text::GrammarVocabulary> vocabulary_{};
  std::array<std::vector<TokenId>, 2> texts_{};
  std::vector<Request> requests_{};
  std::vector<std::unique_ptr<StageEngine>> stages_{};
  std::vector<std::deque<PipeBatch>> queues_;  ///< Behind each stage.
  std::optional<SequenceId> alone_{};          ///< Nobody else is planned.
  Counts counts_{};
};

void run_schedules(DType dtype) {
  Counts all;
  std::uint64_t seed = 0;
  for (const Source& source : sources()) {
    for (std::int64_t stages = 2; stages <= std::min<std::int64_t>(4, source.spec.layers);
         ++stages) {
      SCOPED_TRACE(testing::Message()
                   << source.name << ", " << stages << " stages, seed " << ++seed);
      Schedule schedule(seed, source, stages, dtype);
      schedule.run();
      if (testing::Test::HasFailure()) {
        return;
      }
      all.starved += schedule.counts().starved;
      all.refused += schedule.counts().refused;
      all.together += schedule.counts().together;
      all.hit_tokens += schedule.counts().hit_tokens;
    }
  }
  EXPECT_GT(all.starved, 0) << "leaders should be short of pages now and then";
  EXPECT_GT(all.refused, 0) << "and followers";
  EXPECT_GT(all.together, 100);
  EXPECT_GT(all.hit_tokens, 500U);
}

TEST(Pipe, TextIsTheWholeModelsInFloat32) {
  run_schedules(DType::kF32);
}

TEST(Pipe, TextIsTheWholeModelsInBfloat16) {
  run_schedules(DType::kBf16);
}

TEST(Pipe, TextIsTheWholeModelsInInt8) {
  run_schedules(DType::kI8);
}

/// Two stages of a model, and a sequence of a dozen tokens.
class PipeOfTwo : public testing::Test {
 protected:
  PipeOfTwo() {
    HEDDLE_CHECK(follower_.engine->pipes().reserve(kModel, 60).has_value());
    add(1, 12);
  }

  static ModelSpec stage(std::int64_t index) {
    return spec::stage_of(source().spec, {.index = index, .ends = {1, source().spec.layers}});
  }
  static const Source& source() { return sources().back(); }

  void add(std::uint64_t id, std::int64_t tokens) {
    SequenceStart start{.id = SequenceId{id}, .model = kModel, .prompt_tokens = tokens};
    for (TokenId i = 0; i < tokens; ++i) {
      start.tokens.push_back(i + static_cast<TokenId>(id));
    }
    start.params.max_tokens = 9;
    HEDDLE_CHECK(leader_.engine->add_sequence(std::move(start)).has_value());
  }
  PipeBatch send(std::uint64_t id, std::int64_t tokens) {
    auto outcome = leader_.engine->run(
        {.batches = {
             {.model = kModel, .slices = {{.sequence = SequenceId{id}, .tokens = tokens}}}}});
    HEDDLE_CHECK(outcome.has_value() && outcome->sent.size() == 1);
    return std::move(outcome->sent.front());
  }
  Pipes followers() { return follower_.engine->pipes(); }

  StageEngine leader_{source(), stage(0), DType::kF32, true};
  StageEngine follower_{source(), stage(1), DType::kF32, true};
};

TEST_F(PipeOfTwo, RowsThatAreNotThoseWantedAreRefused) {
  PipeBatch batch = send(1, 12);
  EXPECT_EQ(batch.rows.size(), 12U * 32U);
  EXPECT_EQ(batch.slices[0].wanted, 1);
  ASSERT_TRUE(followers().run(batch));
  EXPECT_EQ(batch.rows.size(), 32U);
  for (const std::size_t rows : {0U, 2U}) {
    PipeBatch wrong = batch;
    wrong.rows.resize(rows * 32);
    const auto finished = leader_.engine->pipes().finish(wrong);
    ASSERT_FALSE(finished);
    EXPECT_EQ(finished.error().code, Code::kCorrupt);
  }
  ASSERT_TRUE(leader_.engine->pipes().finish(batch));
  EXPECT_FALSE(leader_.engine->pipes().finish(batch)) << "it comes back once";
}

TEST_F(PipeOfTwo, AFollowerTakesNoPositionTwiceAndLeavesNoneOut) {
  const PipeBatch first = send(1, 5);
  PipeBatch batch = first;
  ASSERT_TRUE(followers().run(batch));
  ASSERT_TRUE(leader_.engine->pipes().finish(batch));
  const PipeBatch second = send(1, 7);
  const auto refused = [&](const PipeBatch& wrong) {
    PipeBatch copy = wrong;
    const auto done = followers().run(copy);
    return !done && done.error().code == Code::kCorrupt;
  };
  EXPECT_TRUE(refused(first)) << "the same batch again";
  PipeBatch wrong = second;
  wrong.slices[0].position = 4;
  EXPECT_TRUE(refused(wrong));
  wrong = second;
  wrong.number = 3;
  EXPECT_TRUE(refused(wrong));
  wrong = second;
  wrong.rows.pop_back();
  EXPECT_TRUE(refused(wrong));
  wrong = second;
  wrong.slices[0].wanted = 8;
  EXPECT_TRUE(refused(wrong));
  wrong = second;
  wrong.slices[0].tokens.clear();
  wrong.rows.clear();
  EXPECT_TRUE(refused(wrong));
  wrong = second;
  wrong.dropped = {SequenceId{1}};
  EXPECT_TRUE(refused(wrong)) << "it begins at the beginning then";
  batch = second;
  EXPECT_TRUE(followers().run(batch)) << "and nothing has changed by all that";
}

TEST_F(PipeOfTwo, PagesOfAFollowerAreNobodyElses) {
  memory::PagePool& pool = follower_.host.pool();
  const std::int64_t owned = pool.owned_count(kKvLease);
  const std::int64_t free = pool.free_count();
  EXPECT_EQ(owned, 60);
  PipeBatch batch = send(1, 12);
  ASSERT_TRUE(followers().run(batch));
  EXPECT_EQ(pool.free_count(), free);
  EXPECT_EQ(follower_.engine->kv_pages(kModel), 0);
  EXPECT_EQ(follower_.engine->cached_pages(), 0);
  follower_.engine->remove_model(kModel);
  EXPECT_EQ(pool.free_count(), free + owned);
}

TEST_F(PipeOfTwo, AnotherPipelineBeginsWithoutTheSequencesOfTheOneBefore) {
  memory::PagePool& pool = follower_.host.pool();
  const std::int64_t all = pool.free_count() + pool.owned_count(kKvLease);
  PipeBatch batch = send(1, 12);
  ASSERT_TRUE(followers().run(batch));
  ASSERT_TRUE(followers().reserve(kModel, 0));
  EXPECT_EQ(pool.free_count(), all);
  EXPECT_FALSE(followers().reserve(kModel, all + 1));
  EXPECT_EQ(pool.free_count(), all);
  ASSERT_TRUE(followers().reserve(kModel, 40));
  EXPECT_EQ(pool.free_count(), all - 40);
  leader_.engine->remove_sequence(SequenceId{1});
  leader_.engine->pipes().join(kModel);
  add(1, 12);
  batch = send(1, 12);
  EXPECT_EQ(batch.number, 1U);
  EXPECT_TRUE(batch.dropped.empty());
  ASSERT_TRUE(followers().run(batch));
  ASSERT_TRUE(leader_.engine->pipes().finish(batch));
}

TEST_F(PipeOfTwo, SequencesThatWentLeaveTheFollowerWithTheNextBatch) {
  PipeBatch batch = send(1, 12);
  ASSERT_TRUE(followers().run(batch));
  leader_.engine->remove_sequence(SequenceId{1});
  const auto finished = leader_.engine->pipes().finish(batch);
  ASSERT_TRUE(finished);
  EXPECT_TRUE(finished->results.empty());
  add(2, 12);
  batch = send(2, 12);
  EXPECT_EQ(batch.dropped, std::vector{SequenceId{1}});
  ASSERT_TRUE(followers().run(batch));
  EXPECT_TRUE(batch.refused.empty());
}

TEST_F(PipeOfTwo, WeightsThatNeverComeRefuseAll) {
  PipeBatch batch = send(1, 12);
  follower_.engine->abandon_image(kModel);
  ASSERT_TRUE(followers().run(batch));
  EXPECT_EQ(batch.refused, std::vector{SequenceId{1}});
  EXPECT_TRUE(batch.rows.empty());
  const auto finished = leader_.engine->pipes().finish(batch);
  ASSERT_TRUE(finished);
  EXPECT_EQ(finished->refused, std::vector{SequenceId{1}});
}

}  // namespace
}  // namespace heddle::engine
