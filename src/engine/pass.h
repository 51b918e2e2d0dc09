#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/activations.h"
#include "engine/batch_inputs.h"
#include "engine/decoder.h"
#include "engine/model_kv.h"
#include "engine/sequence.h"
#include "engine/upload.h"
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
  /// Enqueues everything: inputs, all layers, sampling, and the way back of the tokens. The slices
  /// and what they refer to stay as they are until the stream is synchronised.
  void enqueue(ops::OpContext& context,
               std::span<const PassSlice> slices,
               const Decoder& decoder,
               const ModelKv& kv,
               const Activations& activations);

  /// After the stream was synchronised: one per slice that samples, in their order; ops::kNoToken
  /// where the logits were not numbers.
  [[nodiscard]] std::span<const std::int32_t> sampled() const { return sampled_; }
  /// What is told with the i-th of those.
  [[nodiscard]] spec::TokenDetails details(std::size_t i) const;
  /// Hidden states after the final norm, [rows, hidden]: the pooled_rows() of every slice, in
  /// order.
  [[nodiscard]] std::span<const float> pooled() const { return pooled_; }

 private:
  /// Where a sampled row's log probabilities are; none where it did not ask for them.
  struct Told {
    std::size_t pick = 0;  ///< Which of the sampled rows.
  };

  void gather_sampling(std::span<const PassSlice> slices);
  void gather_pooling(std::span<const PassSlice> slices);
  void enqueue_sampling(ops::OpContext& context,
                        const Decoder& decoder,
                        const Activations& activations);
  void enqueue_pooling(ops::OpContext& context,
                       const Decoder& decoder,
                       const Activations& activations);

  Upload upload_{};
  BatchInputs inputs_{};
  std::int64_t picks_count_ = 0;
  std::size_t picks_ = 0;  ///< Offsets in the upload, as the following.
  std::size_t sample_rows_ = 0;
  std::size_t penalty_rows_ = 0;
  std::size_t uses_ = 0;
  std::size_t masks_ = 0;
  std::vector<std::int32_t> device_sampled_{};
  std::vector<std::int32_t> sampled_{};

  std::vector<Told> told_{};  ///< Ascending by pick.
  std::size_t log_prob_rows_ = 0;
  std::vector<float> raw_logits_{};  ///< Of up to kLogitRowsMax rows that are told, unpenalised.
  std::vector<std::int32_t> told_tokens_{};  ///< [told, ops::kLogProbsWidth]
  std::vector<float> told_values_{};

  std::int64_t pooled_count_ = 0;
  std::size_t pooled_picks_ = 0;
  std::vector<float> pooled_{};
};

}  // namespace heddle::engine
