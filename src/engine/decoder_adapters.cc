#include <utility>

#include "engine/adapters.h"
#include "engine/decoder.h"
#include "ops/add_low_rank.h"
#include "ops/low_rank_tiles.h"

namespace heddle::engine {
namespace {

/// Pairs that an adapter has for a product at most: of queries, keys and values; gates and ups.
std::int64_t pairs_of(store::AdapterTarget target) {
  switch (target) {
    case store::AdapterTarget::kQkv:
      return 3;
    case store::AdapterTarget::kGateUp:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

/// out += B (A x) for the rows of each adapter that changes this product. Rows without an adapter
/// are neither read nor written. On a GPU the kernels find out which adapters those are.
void Decoder::add_adapters(ops::OpContext& context,
                           const Batch& batch,
                           std::int64_t layer,
                           store::AdapterTarget target,
                           const ops::TensorRef& x,
                           const ops::TensorRef& out,
                           const Activations& activations) const {
  if ((batch.adapter_targets & bit_of(target)) == 0) {
    return;
  }
  if (batch.adapter_tiles != nullptr) {
    ops::add_low_rank_tiles(context,
                            {.x = x,
                             .tiles = batch.adapter_tiles,
                             .count = batch.adapter_tile_count,
                             .entry = AdapterWeights::table_entry(layer, target),
                             .pairs = pairs_of(target),
                             .rank = model_.adapter_rank,
                             .out = out});
    return;
  }
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
