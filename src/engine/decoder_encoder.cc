// What encoders have in place of a decoder's embedding, layers and end.

#include "engine/decoder.h"
#include "engine/linear_parts.h"
#include "ops/add_norm.h"
#include "ops/gather_rows.h"
#include "ops/gelu.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/rescale.h"
#include "spec/operations.h"

namespace heddle::engine {

/// hidden = norm(hidden), and normed the same as products take it.
void Decoder::norm_sums(ops::OpContext& context,
                        const Batch& batch,
                        const ops::ConstTensorRef& weight,
                        const ops::ConstTensorRef& bias,
                        const Activations& activations) const {
  const auto hidden = Activations::rows(activations.hidden, batch.tokens);
  ops::layer_norm(context,
                  {.x = hidden,
                   .weight = weight,
                   .bias = bias,
                   .out = hidden,
                   .copy = Activations::rows(activations.normed, batch.tokens),
                   .eps = static_cast<float>(model_.rms_eps)});
}

void Decoder::embed_text(ops::OpContext& context,
                         ops::ConstTensorRef ids,
                         const Batch& batch,
                         const Activations& activations) const {
  wait_for_stage(context, 0);
  const auto hidden = Activations::rows(activations.hidden, batch.tokens);
  const auto more = Activations::rows(activations.branch, batch.tokens);
  ops::gather_rows(context, {.table = weights_.embedding, .rows = ids, .out = hidden});
  ops::gather_rows(context, {.table = weights_.types, .rows = batch.types, .out = more});
  ops::add_norm(context, {.x = more, .sum = hidden});
  ops::gather_rows(context, {.table = weights_.positions, .rows = batch.positions, .out = more});
  ops::add_norm(context, {.x = more, .sum = hidden});
  norm_sums(context, batch, weights_.embedding_norm, weights_.embedding_norm_bias, activations);
}

/// hidden = norm(hidden + product), normed likewise.
void Decoder::add_and_norm(ops::OpContext& context,
                           const Batch& batch,
                           ops::LinearArgs product,
                           const ops::ConstTensorRef& weight,
                           const ops::ConstTensorRef& bias,
                           const Activations& activations) const {
  const auto hidden = Activations::rows(activations.hidden, batch.tokens);
  product.residual = hidden;
  product.out = hidden;
  ops::linear(context, product);
  norm_sums(context, batch, weight, bias, activations);
}

/// All layers, on what embed_text() left.
void Decoder::encode(ops::OpContext& context,
                     const Batch& batch,
                     const Activations& activations) const {
  const auto normed = Activations::rows(activations.normed, batch.tokens);
  const auto up = Activations::rows(activations.gate_up, batch.tokens);
  const auto gated = Activations::rows(activations.gated, batch.tokens);
  for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
    const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
    wait_for_stage(context, 1 + layer);
    attend(context, layer, batch, activations);
    linear_parts(context,
                 w.gate_up,
                 {.x = normed, .scale = w.gate_up_scale, .bias = w.gate_up_bias, .out = up});
    ops::gelu(context, {.x = up, .out = gated});
    add_and_norm(context,
                 batch,
                 {.x = gated, .weight = w.down, .scale = w.down_scale, .bias = w.down_bias},
                 w.mlp_norm,
                 w.mlp_norm_bias,
                 activations);
  }
}

/// Rows `picks` of the hidden states, or their scores, [n, 1].
ops::TensorRef Decoder::pick_encoded(ops::OpContext& context,
                                     ops::ConstTensorRef picks,
                                     const Activations& activations) const {
  wait_for_stage(context, 1 + model_.layers);
  const std::int64_t n = picks.shape[0];
  const auto picked = Activations::rows(activations.picked, n);
  ops::gather_rows(context, {.table = activations.hidden, .rows = picks, .out = picked});
  if (!model_.encoder.scores) {
    return picked;
  }
  const auto in = Activations::rows(activations.head_in, n);
  ops::rescale(context, {.x = picked, .out = in});
  if (!model_.encoder.bare) {
    const auto dense = Activations::rows(activations.logits, n);
    ops::linear(
        context,
        {.x = in, .weight = weights_.score_dense, .bias = weights_.score_dense_bias, .out = dense});
    ops::rescale(context, {.x = dense, .cap = 1.0F, .out = in});  // Its tanh.
  }
  const auto scores = ops::matrix_of(picked.as<float>(), n, 1);
  ops::linear(context,
              {.x = in, .weight = weights_.score, .bias = weights_.score_bias, .out = scores});
  return scores;
}

}  // namespace heddle::engine
