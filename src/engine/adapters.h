#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "memory/cached_image.h"
#include "memory/cached_pages.h"
#include "memory/page_pool.h"
#include "ops/add_low_rank.h"
#include "ops/low_rank_tile.h"
#include "store/adapter.h"

namespace heddle::engine {

/// Products of a layer, as bits by store::AdapterTarget.
using AdapterTargets = std::uint32_t;
[[nodiscard]] constexpr AdapterTargets bit_of(store::AdapterTarget target) {
  return 1U << static_cast<unsigned>(target);
}
inline constexpr std::int64_t kAdapterTargets = 4;

/// The weights of an adapter where they lie, by layer and product.
struct AdapterWeights {
  /// Of one product, the scale in their B; empty where it stays as it is.
  using Deltas = std::vector<ops::LowRankPair>;
  std::vector<std::array<Deltas, kAdapterTargets>> layers{};
  AdapterTargets targets = 0;  ///< That some layer has.
  /// On GPUs the same on the device, behind the matrices: entries from table_entry() on.
  const ops::LowRankEntry* table = nullptr;

  [[nodiscard]] const Deltas& of(std::int64_t layer, store::AdapterTarget target) const {
    return layers[static_cast<std::size_t>(layer)][static_cast<std::size_t>(target)];
  }
  /// Where the pairs of a product are in the table; it has ops::kLowRankPairs of each.
  [[nodiscard]] static constexpr std::int64_t table_entry(std::int64_t layer,
                                                          store::AdapterTarget target) {
    return (layer * kAdapterTargets + static_cast<std::int64_t>(target)) * ops::kLowRankPairs;
  }
};

/// Rows of a batch that go through one adapter.
struct AdapterRows {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  const AdapterWeights* weights = nullptr;
};

/// The same rows for kernels that find adapters on the device: none is cut but where it is longer
/// than a tile. Where `recurring`, tiles of no rows follow, so that there are as many in many
/// steps: a power of two, or `tokens`, which all rows are, where that is less.
[[nodiscard]] std::vector<ops::LowRankTile> cut_into_tiles(std::span<const AdapterRows> rows,
                                                           std::int64_t tokens,
                                                           bool recurring);

/// An adapter in an engine.
struct AdapterUse {
  std::string identity{};      ///< store::Adapter::identity().
  std::int64_t pages = 0;      ///< 0: its weights are not there.
  std::int64_t sequences = 0;  ///< That have begun with it.
  std::uint64_t loads = 0;     ///< Times that its weights came.
};

/// How weights come to a device whose memory the host does not write, a GPU's.
struct AdapterSending {
  device::Stream* stream = nullptr;  ///< Of the engine; nullptr: the host writes.
  /// Waits for all that is enqueued there.
  memory::CachedImage::Settle settle{};
};

/// The adapters of one model in an engine. Their weights are on pages of the model's KV lease while
/// sequences that have begun go through them, as those sequences' KV is. When the last of them has
/// gone they stay as cached pages, and go in the order of last use where memory is wanted. Used by
/// one thread.
class ModelAdapters {
 public:
  /// `layers` are the model's. Without `keeps` nothing stays that no sequence goes through. `pool`,
  /// `cached` and the stream outlive it.
  ModelAdapters(memory::PagePool& pool,
                memory::OwnerId owner,
                memory::CachedPages& cached,
                std::int64_t layers,
                bool keeps,
                AdapterSending sending = {})
      : pool_(&pool),
        owner_(owner),
        cached_(&cached),
        layers_(layers),
        keeps_(keeps),
        sending_(std::move(sending)) {}

  /// Has the weights of `adapter` in place, for one sequence more. They are valid until as many
  /// leave(). On a GPU the stream is waited for where they come. kResourceExhausted where pages
  /// lack; else as store::Adapter::load(), Device::allocate and Stream::synchronize.
  Result<const AdapterWeights*> use(const store::Adapter& adapter);
  /// A sequence goes through it no more. No enqueued work of it is left, unless there is a way to
  /// wait for that.
  void leave(const store::Adapter& adapter);

  /// Pages of those that sequences go through.
  [[nodiscard]] std::int64_t pages_used() const;
  /// Those that are there, or were.
  [[nodiscard]] std::vector<AdapterUse> uses() const;

 private:
  struct Entry {
    std::unique_ptr<memory::CachedImage> image{};
    AdapterWeights weights{};
    std::uint64_t loads = 0;
  };

  Result<void> fill(const store::Adapter& adapter, const AdapterWeights& weights, std::byte* image);

  memory::PagePool* pool_;
  memory::OwnerId owner_;
  memory::CachedPages* cached_;
  std::int64_t layers_;
  bool keeps_;
  AdapterSending sending_;
  std::map<std::string, Entry> entries_{};  ///< By identity.
};

/// The salt of a sequence's cached prefixes: sequences with different adapters share none, nor do
/// sequences with and without one, whatever their salts are.
[[nodiscard]] std::string adapter_salt(const store::Adapter* adapter, const std::string& salt);

}  // namespace heddle::engine
