#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"
#include "policy/batching.h"
#include "sim/perf_model.h"

namespace heddle::sim {

/// Step times of one model on one kind of GPU in whole picoseconds, with the parts that return
/// remembered: the performance model made cheap enough to be asked at every event.
class StepModel {
 public:
  StepModel(const ModelShape& model,
            const GpuProfile& gpu,
            std::int64_t tp,
            const EngineProfile& engine);

  /// GPU time of all layers' linear parts for `tokens`, and of the head for `rows`.
  [[nodiscard]] std::int64_t base_ps(std::int64_t tokens, std::int64_t rows) const;
  /// Added once when any sequence decodes.
  [[nodiscard]] std::int64_t decode_ps() const { return decode_ps_; }
  /// Added for each token of context that decoding reads.
  [[nodiscard]] std::int64_t context_ps() const { return context_ps_; }
  /// Added for a chunk of a prompt.
  [[nodiscard]] std::int64_t chunk_ps(const PrefillChunk& chunk) const;
  /// Least time of a step, however little the GPU has to do.
  [[nodiscard]] std::int64_t launch_ps() const { return launch_ps_; }
  /// Added to the GPU time of a step.
  [[nodiscard]] std::int64_t fixed_ps() const { return fixed_ps_; }
  /// CPU time between two steps.
  [[nodiscard]] Duration between_steps(std::int64_t batch) const;

  /// The same for the batcher: linear in tokens and context.
  [[nodiscard]] policy::StepCost step_cost(std::int64_t chunk_tokens) const;
  [[nodiscard]] const ModelShape& model() const { return model_; }
  [[nodiscard]] std::int64_t tp() const { return tp_; }

 private:
  ModelShape model_;
  GpuProfile gpu_;
  std::int64_t tp_;
  EngineProfile engine_;
  std::int64_t decode_ps_ = 0;
  std::int64_t context_ps_ = 0;
  std::int64_t launch_ps_ = 0;
  std::int64_t fixed_ps_ = 0;
  mutable std::vector<std::int64_t> layers_ps_{};  ///< By tokens; -1: not asked yet.
  mutable std::vector<std::int64_t> head_ps_{};    ///< By rows.
};

}  // namespace heddle::sim
