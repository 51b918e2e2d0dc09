#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "memory/kv_geometry.h"
#include "memory/page_pool.h"

namespace heddle::memory {

/// A KV block: the `slot`-th of its page.
struct KvBlockRef {
  PageId page{};
  std::uint32_t slot = 0;

  friend auto operator<=>(const KvBlockRef&, const KvBlockRef&) = default;
};

/// The KV blocks of one model and KV group on one device. Takes a page from the pool only when all
/// its own are full and gives it back with its last block, so that models lend each other memory.
/// A new block goes to the fullest page that has room, which lets the others run empty.
///
/// All pages are owned by one lease; blocks that are to outlive their request (cached prefixes) are
/// a second KvCache under a lease of their own, and so never share a page with growing ones. Blocks
/// are addressed through the pool's one mapping: nothing is mapped here. Used by one thread.
class KvCache {
 public:
  /// `pool` outlives the cache; `owner` is the lease that counts its pages.
  KvCache(PagePool& pool, OwnerId owner, const KvGeometry& geometry);
  /// Gives all pages back; no enqueued work touches them any more.
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// A block, contents undefined. kResourceExhausted when it needs a page and the pool has none.
  /// O(log pages).
  Result<KvBlockRef> allocate();
  /// The block was allocated here and no enqueued work touches it any more. O(log pages).
  void free(KvBlockRef block);

  /// Where the block begins on the device; KvGeometry says how it goes on.
  [[nodiscard]] std::byte* address(KvBlockRef block) const {
    return pool_.device().page_address(block.page) + block.slot * geometry_.block_bytes;
  }
  [[nodiscard]] const KvGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::int64_t pages_held() const { return static_cast<std::int64_t>(pages_.size()); }
  [[nodiscard]] std::int64_t blocks_held() const { return blocks_held_; }
  /// Blocks that can be had without another page.
  [[nodiscard]] std::int64_t blocks_spare() const {
    return pages_held() * geometry_.blocks_per_page - blocks_held_;
  }

  /// CHECK-fails unless the books agree with each other and with the pool.
  void check_invariants() const;

 private:
  struct Page {
    std::uint32_t free_slots = 0;
    std::vector<std::uint64_t> free_mask{};  ///< Bit s of word s / 64: slot s is free.
  };

  void set_free_slots(PageId id, Page& page, std::uint32_t free_slots);

  PagePool& pool_;
  OwnerId owner_;
  KvGeometry geometry_;
  std::map<PageId, Page> pages_{};
  /// Pages with room, fullest first: (free slots, page).
  std::set<std::pair<std::uint32_t, PageId>> roomy_{};
  std::int64_t blocks_held_ = 0;
};

}  // namespace heddle::memory
