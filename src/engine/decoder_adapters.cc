#include <utility>

#include "engine/adapters.h"
#include "engine/decoder.h"
#include "ops/add_low_rank.h"

namespace heddle::engine {

/// out += B (A x) for the rows of each adapter that changes this product. Rows without an adapter
/// are neither read nor written.
void Decoder::add_adapters(ops::OpContext& context,
                           const Batch& batch,
                           std::int64_t layer,
                           store::AdapterTarget target,
                           const ops::TensorRef& x,
                           const ops::TensorRef& out,
                           const Activations& activations) const {
  ops::AddLowRankArgs args{.x = x, .out = out, .most_tokens = activations.hidden.shape[0]};
  for (const AdapterRows& group : batch.adapters) {
    const AdapterWeights::Deltas& pairs = group.weights->of(layer, target);
    if (!pairs.empty()) {
      args.rows.push_back({.first = group.first, .rows = group.rows, .pairs = pairs});
    }
  }
  if (!args.rows.empty()) {
    ops::add_low_rank(context, std::move(args));
  }
}

}  // namespace heddle::engine
