#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/activations.h"
#include "engine/batch_inputs.h"
#include "engine/decoder.h"
#include "engine/mirror.h"
#include "engine/model_kv.h"
#include "engine/prompt_scores.h"
#include "engine/sequence.h"
#include "engine/step_graphs.h"
#include "ops/context.h"
#include "ops/log_probs.h"
#include "ops/penalties.h"
#include "ops/sample.h"

namespace heddle::engine {

/// The next `tokens` pending tokens of a sequence whose KV blocks are there; or, *ahead*, one token
/// that the pass before samples, which nobody knows yet.
struct PassSlice {
  static constexpr std::ptrdiff_t kKnown = -1;

  const Sequence* sequence = nullptr;
  std::int64_t tokens = 0;
  std::ptrdiff_t pick = kKnown;  ///< Ahead: which of the rows that the pass before samples it is.

  [[nodiscard]] bool ahead() const { return pick != kKnown; }
  [[nodiscard]] std::int64_t first_position() const {
    return ahead() ? sequence->size() : sequence->computed;
  }
  /// Whether it reaches the last known token, or that which follows.
  [[nodiscard]] bool last() const {
    return ahead() || sequence->computed + tokens == sequence->size();
  }
  /// Whether a token is to be sampled after it.
  [[nodiscard]] bool samples() const { return last() && !pools(sequence->start.params); }
  /// How many of its last rows' hidden states are wanted, or with Pooling::kFirst of its first.
  [[nodiscard]] std::int64_t pooled_rows() const;
  /// Of how many of its first rows the token that follows is told, which is the prompt's.
  [[nodiscard]] std::int64_t scored_rows() const;
  /// Of how many of its last rows the hidden states are wanted behind the last layer.
  [[nodiscard]] std::int64_t wanted_rows() const {
    return scored_rows() > 0 ? tokens : samples() ? 1 : pooled_rows();
  }
};

/// The rows of a decode step of so many sequences: four sizes for each power of two, so that less
/// than a quarter is padding and there are few sizes.
[[nodiscard]] std::size_t recurring_rows(std::size_t sequences);

/// What all keys of a model's CUDA graphs begin with.
[[nodiscard]] inline std::uint64_t graphs_of(const Decoder& decoder) {
  return reinterpret_cast<std::uintptr_t>(&decoder);
}

/// One pass of slices through a whole model and its sampler. Kept from pass to pass for its memory.
/// Used by one thread.
class Pass {
 public:
  /// `device` and `graphs` outlive it. Passes of one stream share `memory`.
  Pass(device::Device& device,
       StepGraphs& graphs,
       std::shared_ptr<PassMemory> memory = std::make_shared<PassMemory>())
      : device_(device), mirror_(device, memory), memory_(std::move(memory)), graphs_(graphs) {}

  /// Enqueues everything: inputs, all layers, sampling, and the way back of the tokens. Fails as
  /// Device::allocate, and then nothing was enqueued. What was enqueued last time is over, or is
  /// waited for; its results are forgotten.
  ///
  /// `before` is the pass that slices which are ahead refer to: the one that was enqueued last on
  /// the same stream. All its rows sample.
  ///
  /// Where the device records, decode steps of models that are there as a whole are padded to one
  /// of few sizes, by rows that repeat the first, and replayed.
  Result<void> enqueue(ops::OpContext& context,
                       std::span<const PassSlice> slices,
                       const Decoder& decoder,
                       const ModelKv& kv,
                       const Activations& activations,
                       const Pass* before = nullptr);
  /// The layers of one stage of a pipeline: of a leader behind the embedding of the tokens, with
  /// `rows` empty; of a follower of these hidden states, one row a token. rows() has what they
  /// give. As enqueue() otherwise.
  Result<void> enqueue_layers(ops::OpContext& context,
                              std::span<const BatchSlice> slices,
                              std::span<const float> rows,
                              const Decoder& decoder,
                              const ModelKv& kv,
                              const Activations& activations);
  /// What is behind the last layer, of the leader: `rows` are the wanted_rows() of every slice, in
  /// order. As enqueue() otherwise.
  Result<void> enqueue_end(ops::OpContext& context,
                           std::span<const PassSlice> slices,
                           std::span<const float> rows,
                           const Decoder& decoder,
                           const Activations& activations);
  /// Waits for what was enqueued, as Stream::synchronize(), and for nothing that came after it.
  Result<void> wait(device::Stream& stream);

  /// After wait(): one per slice that samples, in their order; ops::kNoToken
  /// where the logits were not numbers.
  [[nodiscard]] std::span<const std::int32_t> sampled() const {
    return {mirror_.host<std::int32_t>(sampled_), sampling_};
  }
  /// What is told with the i-th of those.
  [[nodiscard]] spec::TokenDetails details(std::size_t i) const;
  /// What is told of the prompt's tokens behind the scored_rows() of the i-th slice.
  [[nodiscard]] std::vector<spec::PromptToken> scored(std::size_t i) const;
  /// After enqueue_layers(), the hidden states behind the stage, one row a token.
  [[nodiscard]] std::span<const float> rows() const {
    return {mirror_.host<float>(rows_), rows_floats_};
  }
  /// Hidden states after the final norm, [rows, hidden]: the pooled_rows() of every slice, in
  /// order.
  [[nodiscard]] std::span<const float> pooled() const {
    return {mirror_.host<float>(pooled_), pooled_floats_};
  }

 private:
  /// Where a sampled row's log probabilities are; none where it did not ask for them.
  struct Told {
    std::size_t pick = 0;  ///< Which of the sampled rows.
  };

  [[nodiscard]] bool recurs(std::span<const PassSlice> slices, const Decoder& decoder) const;
  [[nodiscard]] GraphKey describe(const Decoder& decoder, const Activations& activations) const;
  void take_tokens(ops::OpContext& context,
                   std::span<const PassSlice> padded,
                   std::size_t slices,
                   const Pass& before) const;
  Result<void> send(ops::OpContext& context);
  static void tell_host(std::span<const PassSlice> slices, const ModelKv& kv);
  void gather_adapters(std::span<const PassSlice> slices, bool recurring);
  void go_through_adapters(Batch& batch) const;
  void gather_sampling(std::span<const PassSlice> slices,
                       std::span<const std::int64_t> ends,
                       std::int64_t logit_rows);
  void gather_scores(std::span<const PassSlice> slices,
                     std::span<const std::int64_t> ends,
                     std::int64_t logit_rows);
  void gather_pooling(std::span<const PassSlice> slices, std::span<const std::int64_t> ends);
  void reserve_results(const Decoder& decoder);
  void enqueue_sampling(ops::OpContext& context,
                        const Decoder& decoder,
                        const Activations& activations);
  void enqueue_pooling(ops::OpContext& context,
                       const Decoder& decoder,
                       const Activations& activations);

  void fetch_sampled(device::Stream& stream);

  device::Device& device_;
  Mirror mirror_;
  std::shared_ptr<PassMemory> memory_;
  StepGraphs& graphs_;
  std::optional<std::uint64_t> enqueued_{};  ///< Its end in the stream, until it was waited for.
  BatchInputs inputs_{};
  std::vector<AdapterRows> adapters_{};
  AdapterTargets adapter_targets_ = 0;
  std::size_t adapter_tiles_ = 0;        ///< In the mirror, on GPUs.
  std::int64_t adapter_tile_count_ = 0;  ///< 0 elsewhere.
  std::size_t sampling_ = 0;             ///< Slices that sample, padding not counted.
  std::int64_t picks_count_ = 0;
  std::int64_t turn_ = 0;  ///< Rows that are sampled at once.
  std::size_t picks_ = 0;  ///< Offsets in the mirror, as the following.
  std::size_t sample_rows_ = 0;
  std::size_t penalty_rows_ = 0;
  std::size_t log_prob_rows_ = 0;
  std::size_t told_tokens_ = 0;  ///< [told, ops::kLogProbsWidth], as the next: results.
  std::size_t told_values_ = 0;
  /// Masks, and uses as if they began where the masks do: what grows with sequences is last, and
  /// where it is does not depend on how much it is.
  std::size_t lists_ = 0;
  std::size_t sampled_ = 0;  ///< On the host; on the device they are in memory_->sampled.

  std::vector<Told> told_{};            ///< Ascending by pick.
  std::vector<std::uint32_t> masks_{};  ///< Until they are added.
  std::vector<ops::TokenUse> uses_{};   ///< Likewise.

  PromptScores scores_{};
  std::vector<std::size_t> scored_ends_{};  ///< Of the scored rows, by slice.

  std::size_t rows_ = 0;
  std::size_t rows_floats_ = 0;

  std::int64_t pooled_count_ = 0;
  std::size_t pooled_picks_ = 0;
  std::size_t pooled_ = 0;
  std::size_t pooled_floats_ = 0;
};

}  // namespace heddle::engine
