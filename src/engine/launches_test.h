#pragma once

#include "spec/model_spec.h"

namespace heddle::engine {

/// Kernels that a step of one sequence launches beside those of layers: embedding, rows that
/// sample, their norm, head, penalties, sample; its inputs.
inline constexpr unsigned long kLaunchesOfAStep = 7;

/// Those of a layer of a dense model: queries, keys and values; their turn and way to the cache;
/// attention; its output; gates and ups; downs. A norm goes with what is before it.
inline unsigned long launches_of_a_layer(const spec::ModelSpec& model) {
  unsigned long launches = 6;
  // What attention and MLP give is added by a kernel of its own, normalised or scaled.
  launches += model.norms != spec::Norms::kBefore || model.scales.residual != 1.0 ? 2 : 0;
  launches += model.norms == spec::Norms::kAfter ? 1 : 0;  // What goes into a layer is rounded.
  launches += model.activation == spec::Activation::kGeluTanh ? 1 : 0;
  launches += model.qk_norm_whole ? 2 : 0;
  return launches;
}

/// Those of a step of one sequence of a dense model, at most.
inline unsigned long launches_of_a_step(const spec::ModelSpec& model) {
  const spec::Scales& scales = model.scales;
  // The first layer has its norm by itself.
  return kLaunchesOfAStep + 1 +
         launches_of_a_layer(model) * static_cast<unsigned long>(model.layers) +
         (scales.embedding != 1.0 ? 1 : 0) + (scales.logits != 1.0 || scales.logit_cap > 0 ? 1 : 0);
}

}  // namespace heddle::engine
