#include "policy/batching.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/check.h"

namespace heddle::policy {
namespace {

/// Attention pairs of running `tokens` more tokens behind `computed` cached ones: token i attends
/// to all before it and to itself.
std::int64_t attention_pairs(std::int64_t computed, std::int64_t tokens) {
  return tokens * computed + tokens * (tokens + 1) / 2;
}

Duration slice_cost(const StepCost& cost, std::int64_t computed, std::int64_t tokens) {
  return cost.per_token * tokens + cost.per_context_token * attention_pairs(computed, tokens);
}

/// The most tokens, at most `limit`, whose cost is within `budget`.
std::int64_t tokens_within(const StepCost& cost,
                           std::int64_t computed,
                           std::int64_t limit,
                           Duration budget) {
  std::int64_t fits = 0;
  std::int64_t beyond = limit + 1;
  while (beyond - fits > 1) {
    const std::int64_t middle = fits + (beyond - fits) / 2;
    (slice_cost(cost, computed, middle) <= budget ? fits : beyond) = middle;
  }
  return fits;
}

/// A plan in the making: what each model runs, and how long all of it takes.
class Draft {
 public:
  Draft(std::span<const StepCost> costs, std::int64_t max_batch_tokens)
      : max_batch_tokens_(max_batch_tokens) {
    for (const StepCost& cost : costs) {
      costs_[cost.model] = cost;
    }
  }

  [[nodiscard]] StepCost cost_of(ModelId model) const {
    const auto found = costs_.find(model);
    return found == costs_.end() ? StepCost{.model = model} : found->second;
  }

  /// Tokens that the model may still run in this step.
  [[nodiscard]] std::int64_t room(ModelId model) const {
    const auto found = models_.find(model);
    return max_batch_tokens_ - (found == models_.end() ? 0 : found->second.tokens);
  }

  /// Whether something of the sequence fits beside what the model runs already.
  [[nodiscard]] bool has_room(const SequenceView& sequence) const {
    const std::int64_t least = sequence.whole ? sequence.pending : 1;
    return room(sequence.model) >= least || is_alone(sequence);
  }

  /// Whether a sequence that runs as a whole would be the only one of its model.
  [[nodiscard]] bool is_alone(const SequenceView& sequence) const {
    return sequence.whole && !models_.contains(sequence.model);
  }

  /// What it costs to run the model at all, unless it runs already.
  [[nodiscard]] Duration entry_cost(ModelId model) const {
    return models_.contains(model) ? Duration{} : cost_of(model).fixed;
  }

  void add(const SequenceView& sequence, std::int64_t tokens) {
    HEDDLE_CHECK(tokens > 0 && (tokens <= room(sequence.model) || is_alone(sequence)));
    predicted_ += entry_cost(sequence.model);
    predicted_ += slice_cost(cost_of(sequence.model), sequence.computed, tokens);
    PerModel& model = models_[sequence.model];
    model.tokens += tokens;
    model.slices.push_back({.sequence = sequence.id, .tokens = tokens});
  }

  [[nodiscard]] Duration predicted() const { return predicted_; }

  [[nodiscard]] StepPlan finish() && {
    StepPlan plan{.predicted = predicted_};
    for (auto& [id, model] : models_) {
      plan.batches.push_back({.model = id, .slices = std::move(model.slices)});
    }
    return plan;
  }

 private:
  struct PerModel {
    std::int64_t tokens = 0;
    std::vector<StepSlice> slices{};
  };

  std::int64_t max_batch_tokens_;
  Duration predicted_{};
  std::map<ModelId, StepCost> costs_{};
  std::map<ModelId, PerModel> models_{};
};

/// The next chunk of a prefill: what fits the rest of the budget, nothing if that is too short to
/// be worth a pass. `owed`: it gets a chunk in any case.
std::int64_t chunk_tokens(const Draft& draft,
                          const SequenceView& sequence,
                          const StepOptions& options,
                          Duration budget,
                          bool owed) {
  const StepCost cost = draft.cost_of(sequence.model);
  const std::int64_t most =
      sequence.whole ? sequence.pending : std::min(sequence.pending, draft.room(sequence.model));
  const std::int64_t least =
      sequence.whole ? most : std::min(most, std::max<std::int64_t>(1, options.min_prefill_tokens));
  const Duration left = budget - draft.predicted() - draft.entry_cost(sequence.model);
  const std::int64_t fits =
      tokens_within(cost, sequence.computed, most, owed ? std::max(left, cost.fixed) : left);
  if (fits >= least) {
    return fits;
  }
  return owed ? least : 0;
}

}  // namespace

bool reads_prompts(const StepPlan& plan) {
  return std::any_of(plan.batches.begin(), plan.batches.end(), [](const ModelBatch& batch) {
    return std::any_of(batch.slices.begin(), batch.slices.end(), [](const StepSlice& slice) {
      return slice.tokens > 1;
    });
  });
}

StepPlan plan_step(std::span<const SequenceView> sequences,
                   std::span<const StepCost> costs,
                   const StepOptions& options) {
  HEDDLE_CHECK(options.max_batch_tokens > 0);
  std::vector<SequenceView> ordered(sequences.begin(), sequences.end());
  std::sort(ordered.begin(), ordered.end(), [](const SequenceView& a, const SequenceView& b) {
    return std::tie(a.rank, a.arrived, a.id) < std::tie(b.rank, b.arrived, b.id);
  });

  Draft draft(costs, options.max_batch_tokens);
  bool decodes = false;
  for (const SequenceView& sequence : ordered) {
    HEDDLE_CHECK(sequence.pending >= 1);
    if (sequence.pending == 1 && draft.room(sequence.model) > 0) {
      draft.add(sequence, 1);
      decodes = true;
    }
  }
  const Duration budget = decodes ? options.budget : kPrefillAlone * options.budget;
  bool prefills = false;
  for (const SequenceView& sequence : ordered) {
    if (sequence.pending == 1 || !draft.has_room(sequence)) {
      continue;
    }
    const std::int64_t tokens = chunk_tokens(draft, sequence, options, budget, /*owed=*/!prefills);
    if (tokens == 0) {
      break;  // Nobody overtakes: what is left of the budget is for the oldest.
    }
    draft.add(sequence, tokens);
    prefills = true;
  }

  StepPlan plan = std::move(draft).finish();
  if (!plan.batches.empty()) {
    // Decodes depend on order of arrival alone. A prefill is somewhere else after its chunk.
    plan.stable_steps = prefills ? 1 : kStableUntilChange;
  }
  return plan;
}

}  // namespace heddle::policy
