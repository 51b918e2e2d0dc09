#include "engine/decoder.h"
#include "ops/experts.h"
#include "ops/linear.h"

namespace heddle::engine {

/// hidden += the weighted sum of what the experts that a token takes give for `normed`.
void Decoder::take_experts(ops::OpContext& context,
                           std::int64_t layer,
                           std::int64_t tokens,
                           const Activations& activations) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const auto hidden = Activations::rows(activations.hidden, tokens);
  const auto normed = Activations::rows(activations.normed, tokens);
  const auto router = Activations::rows(activations.router, tokens);
  const auto chosen = Activations::rows(activations.chosen, tokens);
  const auto weights = Activations::rows(activations.expert_weights, tokens);
  ops::linear(context, {.x = normed, .weight = w.router, .bias = w.router_bias, .out = router});
  ops::choose_experts(context,
                      {.logits = router,
                       .normalised = model_.experts.normalised,
                       .chosen = chosen,
                       .weights = weights});
  ops::experts(
      context,
      {.x = normed,
       .chosen = chosen,
       .weights = weights,
       .gate_up = w.experts_gate_up.front(),
       .up = w.experts_gate_up.size() > 1 ? w.experts_gate_up.back() : ops::ConstTensorRef{},
       .gate_up_scale = w.experts_gate_up_scale,
       .down = w.experts_down,
       .down_scale = w.experts_down_scale,
       .gate_up_bias = w.experts_gate_up_bias,
       .down_bias = w.experts_down_bias,
       .limit = static_cast<float>(model_.experts.gate_limit),
       .gain = static_cast<float>(model_.experts.gate_gain),
       .source = experts_,
       .layer = layer,
       .residual = residual(hidden),
       .rows = Activations::rows(activations.expert_rows, tokens),
       .in = Activations::rows(activations.expert_in, tokens),
       .gated = Activations::rows(activations.expert_gated, tokens),
       .product = Activations::rows(activations.expert_product, tokens),
       .out = hidden});
}

}  // namespace heddle::engine
