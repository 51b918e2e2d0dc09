#include "engine/decoder.h"
#include "engine/linear_parts.h"
#include "ops/gated_delta.h"
#include "ops/linear.h"

namespace heddle::engine {

/// normed = norm(hidden += out(gated_delta(in(normed), rates(normed)))), which leaves the states of
/// the batch's sequences as they are behind their last tokens.
void Decoder::update_states(ops::OpContext& context,
                            std::int64_t layer,
                            const Batch& batch,
                            const Activations& activations) const {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(layer)];
  const auto normed = Activations::rows(activations.normed, batch.tokens);
  const auto in = Activations::rows(activations.delta_in, batch.tokens);
  const auto rates = Activations::rows(activations.delta_rates, batch.tokens);
  const auto mixed = Activations::rows(activations.delta_out, batch.tokens);
  linear_parts(context, w.delta_in, {.x = normed, .scale = w.delta_in_scale, .out = in});
  ops::linear(context, {.x = normed, .weight = w.delta_rates, .out = rates});
  ops::GatedDeltaArgs args{.shape = model_.linear,
                           .rows = batch.rows,
                           .in = in,
                           .rates = rates,
                           .conv = w.delta_conv,
                           .fading = w.delta_fading,
                           .step_bias = w.delta_step_bias,
                           .norm = w.delta_norm,
                           .eps = static_cast<float>(model_.rms_eps),
                           .copy_behind = batch.copy_behind,
                           .out = mixed};
  for (const StatePart& part : kv_.state_parts(layer)) {
    const std::size_t group = kv_.kv_groups() + part.block;
    args.parts.push_back(
        {.heads = part.heads,
         .base = kv_base_,
         .block_bytes = static_cast<std::int64_t>(kv_.groups[group].geometry.block_bytes),
         .offset = part.offset,
         .table = batch.block_tables[group],
         .copies = batch.copies.empty() ? ops::ConstTensorRef{} : batch.copies[part.block]});
  }
  ops::gated_delta(context, args);
  add_mixed(context, layer, batch, mixed, activations);
}

}  // namespace heddle::engine
