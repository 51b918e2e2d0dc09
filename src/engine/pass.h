#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/activations.h"
#include "engine/batch_inputs.h"
#include "engine/decoder.h"
#include "engine/mirror.h"
#include "engine/model_kv.h"
#include "engine/sequence.h"
#include "engine/step_graphs.h"
#include "ops/context.h"
#include "ops/log_probs.h"
#include "ops/penalties.h"
#include "ops/sample.h"

namespace heddle::engine {

/// The next `tokens` pending tokens of a sequence whose KV blocks are there.
struct PassSlice {
  const Sequence* sequence = nullptr;
  std::int64_t tokens = 0;

  /// Whether it reaches the last known token.
  [[nodiscard]] bool last() const { return sequence->computed + tokens == sequence->size(); }
  /// Whether a token is to be sampled after it.
  [[nodiscard]] bool samples() const { return last() && !pools(sequence->start.params); }
  /// How many of its last rows' hidden states are wanted.
  [[nodiscard]] std::int64_t pooled_rows() const;
};

/// One pass of slices through a whole model and its sampler. Kept from pass to pass for its memory.
/// Used by one thread.
class Pass {
 public:
  /// `device` outlives it.
  explicit Pass(device::Device& device) : mirror_(device), records_(device.properties().records) {}

  /// Enqueues everything: inputs, all layers, sampling, and the way back of the tokens. The slices
  /// and what they refer to stay as they are until the stream is synchronised. Fails as
  /// Device::allocate, and then nothing was enqueued.
  ///
  /// Where the device records, decode steps of models that are there as a whole are padded to one
  /// of few sizes, by rows that repeat the first, and replayed.
  Result<void> enqueue(ops::OpContext& context,
                       std::span<const PassSlice> slices,
                       const Decoder& decoder,
                       const ModelKv& kv,
                       const Activations& activations);

  /// After the stream was synchronised: one per slice that samples, in their order; ops::kNoToken
  /// where the logits were not numbers.
  [[nodiscard]] std::span<const std::int32_t> sampled() const {
    return {mirror_.host<std::int32_t>(sampled_), sampling_};
  }
  /// What is told with the i-th of those.
  [[nodiscard]] spec::TokenDetails details(std::size_t i) const;
  /// Hidden states after the final norm, [rows, hidden]: the pooled_rows() of every slice, in
  /// order.
  [[nodiscard]] std::span<const float> pooled() const {
    return {mirror_.host<float>(pooled_), pooled_floats_};
  }

  /// Forgets what was recorded of models, one of which is gone or has another workspace now.
  void forget_recordings() { graphs_.clear(); }
  /// Steps that are replayed.
  [[nodiscard]] std::size_t recordings() const { return graphs_.recorded(); }

 private:
  /// Where a sampled row's log probabilities are; none where it did not ask for them.
  struct Told {
    std::size_t pick = 0;  ///< Which of the sampled rows.
  };

  [[nodiscard]] bool recurs(std::span<const PassSlice> slices, const Decoder& decoder) const;
  [[nodiscard]] GraphKey describe(const Decoder& decoder, const Activations& activations) const;
  void gather_sampling(std::span<const PassSlice> slices);
  void gather_pooling(std::span<const PassSlice> slices);
  void reserve_results(const Decoder& decoder);
  void enqueue_sampling(ops::OpContext& context,
                        const Decoder& decoder,
                        const Activations& activations);
  void enqueue_pooling(ops::OpContext& context,
                       const Decoder& decoder,
                       const Activations& activations);

  void fetch_sampled(device::Stream& stream);

  Mirror mirror_;
  bool records_;
  StepGraphs graphs_{};
  BatchInputs inputs_{};
  std::size_t sampling_ = 0;  ///< Slices that sample, padding not counted.
  std::int64_t picks_count_ = 0;
  std::size_t picks_ = 0;  ///< Offsets in the mirror, as the following.
  std::size_t sample_rows_ = 0;
  std::size_t penalty_rows_ = 0;
  std::size_t uses_ = 0;
  std::size_t masks_ = 0;
  std::size_t log_prob_rows_ = 0;
  std::size_t told_tokens_ = 0;  ///< [told, ops::kLogProbsWidth]; results from here on.
  std::size_t told_values_ = 0;
  std::size_t sampled_ = 0;
  std::size_t raw_logits_ = 0;  ///< Of up to kLogitRowsMax rows that are told, unpenalised.

  std::vector<Told> told_{};  ///< Ascending by pick.

  std::int64_t pooled_count_ = 0;
  std::size_t pooled_picks_ = 0;
  std::size_t pooled_ = 0;
  std::size_t pooled_floats_ = 0;
};

}  // namespace heddle::engine
