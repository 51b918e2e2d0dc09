#pragma once

#include "spec/model_spec.h"
#include "spec/operations.h"

namespace heddle::engine {

/// Kernels that a step of one sequence launches beside those of layers: embedding, rows that
/// sample, their norm, head, penalties, sample; its inputs.
inline constexpr unsigned long kLaunchesOfAStep = 7;

/// What mixes tokens in a layer, with the norm that follows: queries, keys and values; their turn
/// and way to the cache; attention; its output. Or of linear attention what goes in, rates, three
/// for the rule, and its output.
inline unsigned long launches_of_mixing(const spec::ModelSpec& model, std::int64_t layer) {
  if (spec::keeps_state(model, layer)) {
    return 6;
  }
  return 4 + (model.qk_norm_whole ? 2 : 0) + (model.attention_gate ? 1 : 0);
}

/// Those of a layer, at most. Of an MLP: gates and ups; downs, with the norm that follows.
inline unsigned long launches_of_a_layer(const spec::ModelSpec& model, std::int64_t layer) {
  unsigned long launches = launches_of_mixing(model, layer);
  if (model.experts.count > 0) {
    // Router, choice, plan, two products, a sum and a norm. What all tokens share is five more: how
    // much, gates and ups, as much of them, the activation, downs.
    launches += 7 + (model.intermediate > 0 ? 5 : 0);
  } else {
    launches += 2 + (model.activation == spec::Activation::kGeluTanh ? 1 : 0);
  }
  // What attention and MLP give is added by a kernel of its own, normalised or scaled.
  launches += model.norms != spec::Norms::kBefore || model.scales.residual != 1.0 ? 2 : 0;
  launches += model.norms == spec::Norms::kAfter ? 1 : 0;  // What goes into a layer is rounded.
  return launches;
}

/// Further ones of a layer of a dense model whose products all go through adapters: two for each
/// product, and the activation by itself where the product of gates and ups has it at its end.
inline unsigned long launches_of_adapters(const spec::ModelSpec& model) {
  return 8 + (model.activation == spec::Activation::kGeluTanh ? 0 : 1);
}

/// Those of a step of one sequence, at most.
inline unsigned long launches_of_a_step(const spec::ModelSpec& model) {
  const spec::Scales& scales = model.scales;
  unsigned long launches = kLaunchesOfAStep + 1;  // The first layer has its norm by itself.
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    launches += launches_of_a_layer(model, layer);
  }
  return launches + (scales.embedding != 1.0 ? 1 : 0) +
         (scales.logits != 1.0 || scales.logit_cap > 0 ? 1 : 0);
}

}  // namespace heddle::engine
