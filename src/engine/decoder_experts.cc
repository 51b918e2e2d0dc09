#include <cmath>

#include "engine/decoder.h"
#include "ops/add_norm.h"
#include "ops/experts.h"
#include "ops/linear.h"
#include "ops/rescale.h"
#include "ops/rms_norm.h"

namespace heddle::engine {

/// Which experts tokens take, by what their router makes of `normed`.
void Decoder::choose_experts(ops::OpContext& context,
                             std::int64_t layer,
                             std::int64_t tokens,
                             const Activations& activations) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const auto normed = Activations::rows(activations.normed, tokens);
  const auto router = Activations::rows(activations.router, tokens);
  ops::linear(context, {.x = normed, .weight = w.router, .bias = w.router_bias, .out = router});
  if (model_.experts.beside) {
    const auto factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(model_.hidden)));
    ops::rescale(context, {.x = router, .factor = factor, .out = router});
  }
  ops::choose_experts(context,
                      {.logits = router,
                       .normalised = model_.experts.normalised,
                       .scale = w.expert_scales,
                       .chosen = Activations::rows(activations.chosen, tokens),
                       .weights = Activations::rows(activations.expert_weights, tokens)});
}

/// out = residual + the weighted sum of what the experts that a token takes give for `normed`.
void Decoder::take_experts(ops::OpContext& context,
                           std::int64_t layer,
                           std::int64_t tokens,
                           const Activations& activations,
                           const ops::ConstTensorRef& residual,
                           const ops::TensorRef& out) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  ops::experts(
      context,
      {.x = Activations::rows(activations.normed, tokens),
       .chosen = Activations::rows(activations.chosen, tokens),
       .weights = Activations::rows(activations.expert_weights, tokens),
       .gate_up = w.experts_gate_up.front(),
       .up = w.experts_gate_up.size() > 1 ? w.experts_gate_up.back() : ops::ConstTensorRef{},
       .gate_up_scale = w.experts_gate_up_scale,
       .down = w.experts_down,
       .down_scale = w.experts_down_scale,
       .gate_up_bias = w.experts_gate_up_bias,
       .down_bias = w.experts_down_bias,
       .gelu = model_.activation == spec::Activation::kGeluTanh,
       .limit = static_cast<float>(model_.experts.gate_limit),
       .gain = static_cast<float>(model_.experts.gate_gain),
       .source = experts_,
       .layer = layer,
       .residual = residual,
       .rows = Activations::rows(activations.expert_rows, tokens),
       .in = Activations::rows(activations.expert_in, tokens),
       .gated = Activations::rows(activations.expert_gated, tokens),
       .product = Activations::rows(activations.expert_product, tokens),
       .out = out});
}

/// hidden += mlp_norm(mlp_own_norm(MLP(normed)) + experts_own_norm(experts(hidden))), where experts
/// and their router have norms of their own of the hidden states. What comes of it is normalised by
/// `norm` where that is present.
void Decoder::feed_forward_beside(ops::OpContext& context,
                                  std::int64_t layer,
                                  const Batch& batch,
                                  const Activations& activations,
                                  const ops::ConstTensorRef& norm) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const std::int64_t tokens = batch.tokens;
  const auto hidden = Activations::rows(activations.hidden, tokens);
  const auto normed = Activations::rows(activations.normed, tokens);
  const auto branch = Activations::rows(activations.branch, tokens);
  const auto experts = Activations::rows(activations.experts_branch, tokens);
  const auto eps = static_cast<float>(model_.rms_eps);
  gate(context, layer, batch, activations);
  const auto gated = Activations::rows(activations.gated, tokens);
  ops::linear(
      context,
      {.x = gated, .weight = w.down, .scale = w.down_scale, .bias = w.down_bias, .out = branch});
  sum_over_ranks(context, branch);
  ops::rms_norm(context, norm_of(branch, w.mlp_own_norm, branch));
  ops::rms_norm(context, norm_of(hidden, w.router_norm, normed));
  choose_experts(context, layer, tokens, activations);
  ops::rms_norm(context, norm_of(hidden, w.experts_norm, normed));
  take_experts(context, layer, tokens, activations, {}, experts);
  sum_over_ranks(context, experts);
  ops::add_norm(context, {.x = experts, .weight = w.experts_own_norm, .eps = eps, .sum = branch});
  ops::add_norm(context,
                {.x = branch,
                 .weight = w.mlp_norm,
                 .eps = eps,
                 .sum = hidden,
                 .next_weight = norm,
                 .next = norm.present() ? normed : ops::TensorRef{}});
}

}  // namespace heddle::engine
