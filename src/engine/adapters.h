#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory/cached_image.h"
#include "memory/cached_pages.h"
#include "memory/page_pool.h"
#include "ops/add_low_rank.h"
#include "store/adapter.h"

namespace heddle::engine {

/// The weights of an adapter where they lie, by layer and product.
struct AdapterWeights {
  /// Of one product, the scale in their B; empty where it stays as it is.
  using Deltas = std::vector<ops::LowRankPair>;
  std::vector<std::array<Deltas, 4>> layers{};

  [[nodiscard]] const Deltas& of(std::int64_t layer, store::AdapterTarget target) const {
    return layers[static_cast<std::size_t>(layer)][static_cast<std::size_t>(target)];
  }
};

/// Rows of a batch that go through one adapter.
struct AdapterRows {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  const AdapterWeights* weights = nullptr;
};

/// An adapter in an engine.
struct AdapterUse {
  std::string identity{};      ///< store::Adapter::identity().
  std::int64_t pages = 0;      ///< 0: its weights are not there.
  std::int64_t sequences = 0;  ///< That have begun with it.
  std::uint64_t loads = 0;     ///< Times that its weights came.
};

/// The adapters of one model in an engine. Their weights are on pages of the model's KV lease while
/// sequences that have begun go through them, as those sequences' KV is. When the last of them has
/// gone they stay as cached pages, and go in the order of last use where memory is wanted. Used by
/// one thread.
class ModelAdapters {
 public:
  /// `layers` are the model's. Without `keeps` nothing stays that no sequence goes through. `pool`
  /// and `cached` outlive it.
  ModelAdapters(memory::PagePool& pool,
                memory::OwnerId owner,
                memory::CachedPages& cached,
                std::int64_t layers,
                bool keeps)
      : pool_(&pool), owner_(owner), cached_(&cached), layers_(layers), keeps_(keeps) {}

  /// Has the weights of `adapter` in place, for one sequence more. They are valid until as many
  /// leave(). kResourceExhausted where pages lack; else as store::Adapter::load().
  Result<const AdapterWeights*> use(const store::Adapter& adapter);
  /// A sequence goes through it no more. No enqueued work of it is left.
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

  memory::PagePool* pool_;
  memory::OwnerId owner_;
  memory::CachedPages* cached_;
  std::int64_t layers_;
  bool keeps_;
  std::map<std::string, Entry> entries_{};  ///< By identity.
};

/// The salt of a sequence's cached prefixes: sequences with different adapters share none, nor do
/// sequences with and without one, whatever their salts are.
[[nodiscard]] std::string adapter_salt(const store::Adapter* adapter, const std::string& salt);

}  // namespace heddle::engine
