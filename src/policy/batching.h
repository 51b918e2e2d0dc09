#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace heddle::policy {

/// One answer being generated on one device: a request with n answers is n sequences.
using SequenceId = Id<struct SequenceIdTag>;

/// What the batcher knows of a sequence that may run now (admitted, its model serving).
struct SequenceView {
  SequenceId id{};
  ModelId model{};
  std::int64_t computed = 0;  ///< Tokens whose keys and values are in the cache.
  std::int64_t pending = 0;   ///< Known tokens not computed yet: 1 = decode, more = prefill; >= 1.
  Instant arrived{};
  bool whole = false;      ///< All that is pending goes into one step, or nothing.
  std::uint64_t rank = 0;  ///< Of those that prefill the lower goes first; of equals the older.
};

/// What a step costs on this device, per model; measured averages, at first guesses.
struct StepCost {
  ModelId model{};
  Duration fixed{};              ///< Any step that runs the model at all: reading the weights.
  Duration per_token{};          ///< Each token through the linear layers.
  Duration per_context_token{};  ///< Each pair of a query token and a token it attends to.
};

struct StepOptions {
  Duration budget{};  ///< Aim of the duration of a step that somebody's next token waits for.
  std::int64_t max_batch_tokens = 0;  ///< Most tokens through one model in one step.
  std::int64_t min_prefill_tokens =
      1;  ///< A prefill chunk is at least this long, or all that is left.
};

struct StepSlice {
  SequenceId sequence{};
  std::int64_t tokens = 0;  ///< Run the next `tokens` pending tokens.
  friend bool operator==(const StepSlice&, const StepSlice&) = default;
};

struct ModelBatch {
  ModelId model{};
  std::vector<StepSlice> slices{};  ///< Decodes first, then prefill chunks.
  friend bool operator==(const ModelBatch&, const ModelBatch&) = default;
};

/// What one device does in one step.
struct StepPlan {
  std::vector<ModelBatch> batches{};  ///< By model id.
  Duration predicted{};
  /// For how many steps, this one included, the same plan would be made if every sequence merely
  /// got one token longer; lets a simulator skip ahead. At least 1 unless the plan is empty.
  std::int64_t stable_steps = 0;
};

/// Whether a sequence runs more than one token.
[[nodiscard]] bool reads_prompts(const StepPlan& plan);

/// How many budgets a step without decodes may take: as long as a cancellation may go unnoticed.
inline constexpr std::int64_t kPrefillAlone = 40;

/// stable_steps of a plan that only sequences coming, going or ending can change.
inline constexpr std::int64_t kStableUntilChange = std::numeric_limits<std::int64_t>::max();

/// Chooses what runs in the next step: the decodes of all models before the prefill of any, prefill
/// by rank, then arrival, in chunks that fit what is left of the time budget (chunked prefill,
/// A. Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve",
/// arXiv:2403.02310). The budget protects decodes: in a step without any, which only new arrivals
/// wait for, prefill may take kPrefillAlone times as long.
///
/// A sequence that is to run as a whole gets no chunks. One that is longer than max_batch_tokens
/// runs as the only one of its model in a step.
///
/// Progress is guaranteed: a non-empty input gives a non-empty plan whatever the budget, and the
/// oldest prefill whose model has room gets a chunk even where decodes alone exceed the budget, so
/// that new requests never wait for old ones to end: a shortest one, or as many tokens as take the
/// time that the model's fixed cost takes anyway, so that no more than half of a prefill goes into
/// reading weights. A model without a cost counts as free. Pure; independent of the order of
/// `sequences` (ties by id). O(S log S) for S sequences. options.max_batch_tokens > 0.
[[nodiscard]] StepPlan plan_step(std::span<const SequenceView> sequences,
                                 std::span<const StepCost> costs,
                                 const StepOptions& options);

}  // namespace heddle::policy
