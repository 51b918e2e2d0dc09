#include "policy/batching.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace heddle::policy {
namespace {

using namespace std::chrono_literals;

constexpr ModelId kA{1};
constexpr ModelId kB{2};

SequenceView sequence(std::uint64_t id,
                      ModelId model,
                      std::int64_t computed,
                      std::int64_t pending) {
  return {.id = SequenceId(id),
          .model = model,
          .computed = computed,
          .pending = pending,
          .arrived = Instant{Duration{static_cast<Duration::rep>(id)}}};
}

const StepCost kCosts[] = {
    {.model = kA, .fixed = 2ms, .per_token = 100us, .per_context_token = 0ns},
    {.model = kB, .fixed = 3ms, .per_token = 100us, .per_context_token = 0ns}};

TEST(PlanStep, NothingToRunGivesAnEmptyPlan) {
  const StepPlan plan = plan_step({}, kCosts, {.budget = 10ms, .max_batch_tokens = 64});
  EXPECT_TRUE(plan.batches.empty());
  EXPECT_EQ(plan.stable_steps, 0);
}

TEST(PlanStep, DecodesOfAllModelsComeBeforePrefillOfAny) {
  const SequenceView sequences[] = {
      sequence(1, kA, 0, 500), sequence(2, kA, 40, 1), sequence(3, kB, 40, 1)};
  const StepPlan plan = plan_step(sequences, kCosts, {.budget = 10ms, .max_batch_tokens = 512});
  ASSERT_EQ(plan.batches.size(), 2U);
  // 10 ms less two passes (5 ms) and two decodes (0.2 ms) leave 48 tokens of prefill.
  EXPECT_EQ(plan.batches[0].slices,
            (std::vector<StepSlice>{{SequenceId(2), 1}, {SequenceId(1), 48}}));
  EXPECT_EQ(plan.batches[1].slices, (std::vector<StepSlice>{{SequenceId(3), 1}}));
  EXPECT_EQ(plan.predicted, 10ms);
  EXPECT_EQ(plan.stable_steps, 1);
}

SequenceView whole(std::uint64_t id, ModelId model, std::int64_t pending) {
  SequenceView view = sequence(id, model, 0, pending);
  view.whole = true;
  return view;
}

TEST(PlanStep, WholeTextsGetNoChunks) {
  const SequenceView sequences[] = {whole(1, kA, 40), whole(2, kA, 40), whole(3, kA, 20)};
  const StepPlan plan = plan_step(sequences, {}, {.budget = 10ms, .max_batch_tokens = 64});
  EXPECT_EQ(plan.batches[0].slices,
            (std::vector<StepSlice>{{SequenceId(1), 40}, {SequenceId(3), 20}}));
  // The next one would exceed the budget of a step that a decode waits for.
  const SequenceView with_decode[] = {sequence(9, kB, 40, 1), whole(1, kA, 40), whole(2, kA, 20)};
  const StepPlan tight = plan_step(with_decode, kCosts, {.budget = 10ms, .max_batch_tokens = 64});
  EXPECT_EQ(tight.batches[0].slices, (std::vector<StepSlice>{{SequenceId(1), 40}}));
}

TEST(PlanStep, AWholeTextLongerThanAStepRunsAlone) {
  const SequenceView sequences[] = {
      whole(1, kA, 10), whole(2, kA, 300), whole(3, kB, 300), whole(4, kB, 10)};
  const StepOptions options{.budget = 1ms, .max_batch_tokens = 64};
  const StepPlan plan = plan_step(sequences, {}, options);
  ASSERT_EQ(plan.batches.size(), 2U);
  EXPECT_EQ(plan.batches[0].slices, (std::vector<StepSlice>{{SequenceId(1), 10}}));
  EXPECT_EQ(plan.batches[1].slices, (std::vector<StepSlice>{{SequenceId(3), 300}}));
  // However little the budget is, the oldest one runs.
  const SequenceView next[] = {whole(2, kA, 300), whole(4, kA, 10)};
  EXPECT_EQ(plan_step(next, kCosts, options).batches[0].slices,
            (std::vector<StepSlice>{{SequenceId(2), 300}}));
}

TEST(PlanStep, PrefillIsInOrderOfArrivalAndNobodyOvertakes) {
  const SequenceView sequences[] = {
      sequence(3, kA, 0, 5), sequence(2, kA, 0, 90), sequence(1, kA, 40, 1)};
  const StepPlan plan = plan_step(
      sequences, kCosts, {.budget = 10ms, .max_batch_tokens = 512, .min_prefill_tokens = 8});
  EXPECT_EQ(plan.batches[0].slices,
            (std::vector<StepSlice>{{SequenceId(1), 1}, {SequenceId(2), 79}}));
}

TEST(PlanStep, PrefillThatDelaysNoDecodeIsGivenMoreTime) {
  const SequenceView sequences[] = {sequence(2, kA, 0, 500), sequence(1, kA, 0, 90)};
  const StepPlan plan = plan_step(
      sequences, kCosts, {.budget = 1ms, .max_batch_tokens = 512, .min_prefill_tokens = 8});
  // 40 ms less one pass (2 ms) and 90 tokens (9 ms) leave 290 tokens.
  EXPECT_EQ(plan.batches[0].slices,
            (std::vector<StepSlice>{{SequenceId(1), 90}, {SequenceId(2), 290}}));
}

TEST(PlanStep, APassThatReadsTheWeightsAnywayIsUsedForAsLongAgain) {
  const SequenceView sequences[] = {sequence(1, kA, 40, 1), sequence(2, kA, 0, 500)};
  const StepPlan plan = plan_step(
      sequences, kCosts, {.budget = 1ms, .max_batch_tokens = 512, .min_prefill_tokens = 8});
  EXPECT_EQ(plan.batches[0].slices,
            (std::vector<StepSlice>{{SequenceId(1), 1}, {SequenceId(2), 20}}));
}

TEST(PlanStep, ThePrefillThatWaitsLongestIsNotStarvedByDecodes) {
  std::vector<SequenceView> sequences;
  for (std::uint64_t id = 1; id <= 100; ++id) {
    sequences.push_back(sequence(id, kA, 40, 1));
  }
  sequences.push_back(sequence(200, kB, 0, 300));
  sequences.push_back(sequence(201, kB, 0, 300));
  const StepPlan plan = plan_step(
      sequences, kCosts, {.budget = 5ms, .max_batch_tokens = 512, .min_prefill_tokens = 16});
  EXPECT_EQ(plan.batches[0].slices.size(), 100U);
  EXPECT_EQ(plan.batches[1].slices, (std::vector<StepSlice>{{SequenceId(200), 30}}));
}

TEST(PlanStep, KeepsToTheMostTokensOfOneModel) {
  const SequenceView sequences[] = {
      sequence(1, kA, 9, 1), sequence(2, kA, 9, 1), sequence(3, kA, 9, 1), sequence(4, kA, 0, 9)};
  const StepPlan plan = plan_step(sequences, kCosts, {.budget = 1s, .max_batch_tokens = 2});
  EXPECT_EQ(plan.batches[0].slices,
            (std::vector<StepSlice>{{SequenceId(1), 1}, {SequenceId(2), 1}}));
}

TEST(PlanStep, CountsWhatTokensAttendTo) {
  const StepCost cost{.model = kA, .per_context_token = 1us};
  const SequenceView behind_1000[] = {sequence(1, kA, 1000, 500)};
  // t tokens behind 1000 attend to 1000 t + t (t + 1) / 2 tokens: 9 make 9045, 10 make 10055.
  const StepPlan plan =
      plan_step(behind_1000, {&cost, 1}, {.budget = 250us, .max_batch_tokens = 512});
  EXPECT_EQ(plan.batches[0].slices[0].tokens, 9);
}

std::vector<SequenceView> random_sequences(Rng& rng) {
  std::vector<SequenceView> sequences;
  const std::uint64_t count = rng.below(12);
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool decode = rng.below(2) == 0;
    SequenceView view = sequence(i + 1,
                                 ModelId(1 + rng.below(3)),
                                 static_cast<std::int64_t>(rng.below(200)),
                                 decode ? 1 : 2 + static_cast<std::int64_t>(rng.below(300)));
    view.arrived = Instant{Duration{static_cast<Duration::rep>(rng.below(3))}};  // Ties are common.
    sequences.push_back(view);
  }
  return sequences;
}

StepOptions random_options(Rng& rng) {
  return {.budget = Duration{static_cast<Duration::rep>(rng.below(20'000'000))},
          .max_batch_tokens = 1 + static_cast<std::int64_t>(rng.below(64)),
          .min_prefill_tokens = 1 + static_cast<std::int64_t>(rng.below(32))};
}

// What a plan promises whatever it is given.
TEST(PlanStep, KeepsItsPromisesOnRandomInput) {
  for (std::uint64_t seed = 0; seed < 5000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<SequenceView> sequences = random_sequences(rng);
    const StepOptions options = random_options(rng);
    const StepPlan plan = plan_step(sequences, kCosts, options);

    ASSERT_EQ(plan.batches.empty(), sequences.empty());
    std::map<SequenceId, std::int64_t> planned;
    for (const ModelBatch& batch : plan.batches) {
      std::int64_t tokens = 0;
      for (const StepSlice& slice : batch.slices) {
        const auto view = std::find_if(sequences.begin(), sequences.end(), [&](const auto& s) {
          return s.id == slice.sequence;
        });
        ASSERT_NE(view, sequences.end());
        ASSERT_EQ(view->model, batch.model);
        ASSERT_GE(slice.tokens, 1);
        ASSERT_LE(slice.tokens, view->pending);
        ASSERT_TRUE(planned.emplace(slice.sequence, slice.tokens).second);
        tokens += slice.tokens;
      }
      ASSERT_LE(tokens, options.max_batch_tokens);
    }
    std::reverse(sequences.begin(), sequences.end());
    ASSERT_EQ(plan_step(sequences, kCosts, options).batches, plan.batches);
  }
}

// stable_steps, step by step: the same plan as long as it says.
TEST(PlanStep, StaysStableAsLongAsItSays) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<SequenceView> sequences = random_sequences(rng);
    const StepOptions options = random_options(rng);
    const StepPlan first = plan_step(sequences, kCosts, options);
    for (std::int64_t step = 1; step < std::min<std::int64_t>(first.stable_steps, 40); ++step) {
      for (SequenceView& view : sequences) {
        ++view.computed;
      }
      ASSERT_EQ(plan_step(sequences, kCosts, options).batches, first.batches) << "step " << step;
    }
  }
}

TEST(ReadsPrompts, MoreThanOneTokenOfASequence) {
  StepPlan plan{.batches = {{.slices = {{SequenceId(1), 1}}}, {.slices = {{SequenceId(2), 1}}}}};
  EXPECT_FALSE(reads_prompts(plan));
  plan.batches[1].slices.push_back({SequenceId(3), 2});
  EXPECT_TRUE(reads_prompts(plan));
  EXPECT_FALSE(reads_prompts({}));
}

}  // namespace
}  // namespace heddle::policy
