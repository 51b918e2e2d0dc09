#include "engine/adapters.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace heddle::engine {
namespace {

AdapterWeights bind(const store::Adapter& adapter, std::int64_t layers, std::byte* image) {
  AdapterWeights weights;
  weights.layers.resize(static_cast<std::size_t>(layers));
  const std::int64_t rank = adapter.config().rank;
  for (const store::AdapterPair& pair : adapter.pairs()) {
    const ops::LowRankPair delta{
        .first = pair.first,
        .a = ops::tensor_2d(image + pair.a_offset, adapter.dtype(), rank, pair.inputs),
        .b = ops::tensor_2d(image + pair.b_offset, adapter.dtype(), pair.outputs, rank)};
    weights.layers[static_cast<std::size_t>(pair.layer)][static_cast<std::size_t>(pair.target)]
        .push_back(delta);
    weights.targets |= bit_of(pair.target);
  }
  return weights;
}

/// The table behind an image, which ends at a multiple of 64.
std::vector<ops::LowRankEntry> table_of(const AdapterWeights& weights) {
  const std::int64_t layers = std::ssize(weights.layers);
  std::vector<ops::LowRankEntry> table(
      static_cast<std::size_t>(layers * kAdapterTargets * ops::kLowRankPairs));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t i = 0; i < kAdapterTargets; ++i) {
      const auto target = static_cast<store::AdapterTarget>(i);
      const AdapterWeights::Deltas& deltas = weights.of(layer, target);
      HEDDLE_CHECK(std::ssize(deltas) <= ops::kLowRankPairs);
      auto entry = static_cast<std::size_t>(AdapterWeights::table_entry(layer, target));
      for (const ops::LowRankPair& delta : deltas) {
        table[entry++] = {.a = delta.a.data,
                          .b = delta.b.data,
                          .first = static_cast<std::int32_t>(delta.first),
                          .outputs = static_cast<std::int32_t>(delta.b.shape[0]),
                          .rank = static_cast<std::int32_t>(delta.a.shape[0])};
      }
    }
  }
  return table;
}

/// Bytes of it for a model of so many layers.
std::size_t table_bytes(std::int64_t layers) {
  return static_cast<std::size_t>(layers * kAdapterTargets * ops::kLowRankPairs) *
         sizeof(ops::LowRankEntry);
}

}  // namespace

std::vector<ops::LowRankTile> cut_into_tiles(std::span<const AdapterRows> rows,
                                             std::int64_t tokens,
                                             bool recurring) {
  std::vector<ops::LowRankTile> tiles;
  for (const AdapterRows& group : rows) {
    for (std::int64_t first = 0; first < group.rows; first += ops::kLowRankTileTokens) {
      tiles.push_back({.table = group.weights->table,
                       .first = static_cast<std::int32_t>(group.first + first),
                       .tokens = static_cast<std::int32_t>(
                           std::min(ops::kLowRankTileTokens, group.rows - first))});
    }
  }
  if (recurring && !tiles.empty()) {
    tiles.resize(std::min(std::bit_ceil(tiles.size()), static_cast<std::size_t>(tokens)));
  }
  return tiles;
}

/// Has the matrices of an adapter in its image, and on a GPU the table behind them.
Result<void> ModelAdapters::fill(const store::Adapter& adapter,
                                 const AdapterWeights& weights,
                                 std::byte* image) {
  const auto bytes = static_cast<std::size_t>(adapter.image_bytes());
  if (sending_.stream == nullptr) {
    return adapter.load(std::span(image, bytes));
  }
  const std::size_t all = bytes + table_bytes(layers_);
  const auto staging = pool_->device().allocate(device::Place::kHost, all);
  if (!staging) {
    return staging.error();
  }
  if (const auto loaded = adapter.load(std::span(staging->data(), bytes)); !loaded) {
    return loaded;
  }
  std::memcpy(staging->data() + bytes, table_of(weights).data(), all - bytes);
  sending_.stream->copy(image, staging->data(), all);
  return sending_.stream->synchronize();
}

Result<const AdapterWeights*> ModelAdapters::use(const store::Adapter& adapter) {
  Entry& entry = entries_[adapter.identity()];
  if (entry.image != nullptr && entry.image->there()) {
    entry.image->use();
    return &entry.weights;
  }
  const auto bytes = static_cast<std::size_t>(adapter.image_bytes());
  const bool sent = sending_.stream != nullptr;
  auto image = memory::CachedImage::create(
      *pool_, owner_, *cached_, bytes + (sent ? table_bytes(layers_) : 0), sending_.settle);
  if (!image) {
    return image.error();
  }
  AdapterWeights weights = bind(adapter, layers_, (*image)->base());
  if (sent) {
    weights.table = reinterpret_cast<const ops::LowRankEntry*>((*image)->base() + bytes);
  }
  if (const auto filled = fill(adapter, weights, (*image)->base()); !filled) {
    return filled.error();
  }
  entry.image = std::move(*image);
  entry.weights = std::move(weights);
  ++entry.loads;
  return &entry.weights;
}

void ModelAdapters::leave(const store::Adapter& adapter) {
  Entry& entry = entries_.at(adapter.identity());
  entry.image->leave();
  if (!keeps_ && entry.image->users() == 0) {
    if (sending_.settle) {
      sending_.settle();
    }
    entry.image.reset();
  }
}

std::int64_t ModelAdapters::pages_used() const {
  std::int64_t pages = 0;
  for (const auto& [identity, entry] : entries_) {
    pages += entry.image != nullptr && entry.image->users() > 0 ? entry.image->pages() : 0;
  }
  return pages;
}

std::vector<AdapterUse> ModelAdapters::uses() const {
  std::vector<AdapterUse> uses;
  for (const auto& [identity, entry] : entries_) {
    const bool there = entry.image != nullptr;
    uses.push_back({.identity = identity,
                    .pages = there ? entry.image->pages() : 0,
                    .sequences = there ? entry.image->users() : 0,
                    .loads = entry.loads});
  }
  return uses;
}

std::string adapter_salt(const store::Adapter* adapter, const std::string& salt) {
  if (adapter != nullptr) {
    return "\n" + adapter->identity() + "\n" + salt;
  }
  // An identity is not empty, so this is none of the above.
  return salt.starts_with('\n') ? "\n\n" + salt : salt;
}

}  // namespace heddle::engine
