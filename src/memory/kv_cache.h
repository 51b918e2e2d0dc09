#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "memory/cached_pages.h"
#include "memory/kv_geometry.h"
#include "memory/kv_store.h"
#include "memory/page_pool.h"

namespace heddle::memory {

/// A KV block: the `slot`-th of its page.
struct KvBlockRef {
  PageId page{};
  std::uint32_t slot = 0;

  friend auto operator<=>(const KvBlockRef&, const KvBlockRef&) = default;
};

/// Where a cache's blocks go that it lets go of, and whose they are there.
struct KvKeeper {
  KvStore* store = nullptr;  ///< None: they are lost.
  KvOrigin origin{};
};

/// The KV blocks of one model and KV group on one device. Takes a page from the pool only when all
/// its own are full and gives it back with its last block, so that models lend each other memory.
/// A new block goes to the fullest page in use that has room, which lets the others run empty.
///
/// A block is *used* by one or more sequences, or *free*; and one that was kept under a key stays,
/// *idle*, when its last user leaves, to be found by its key again. A page that holds idle blocks
/// and no used ones is *cached* (CachedPages): no new block goes there, and it is dropped as a
/// whole when its memory is wanted. Idle blocks on a page in use are evicted for new blocks when no
/// page is free. So what is idle never costs what is used anything. What is given up in one of
/// these ways, or as the cache ends, a KvStore may keep.
///
/// Equal calls on caches with equally many pages give blocks alike, whatever the pages' numbers:
/// the ranks of a sharded model run short together.
///
/// All pages are owned by one lease. Blocks are addressed through the pool's one mapping: nothing
/// is mapped here. Used by one thread.
class KvCache : public CachedPages::Owner {
 public:
  /// `pool`, `cached` and the keeper's store outlive the cache; `owner` is the lease that counts
  /// its pages.
  KvCache(PagePool& pool,
          OwnerId owner,
          const KvGeometry& geometry,
          CachedPages& cached,
          const KvKeeper& keeper = {});
  /// Gives all pages back; no enqueued work touches them any more.
  ~KvCache() override;
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  /// A block with one user, contents undefined. Where the pool has no page, the victim is the least
  /// recently used idle block on a page in use, as nobody else can use it, then the least recently
  /// used cached page of the device; kResourceExhausted when there is neither. O(log pages).
  Result<KvBlockRef> allocate();
  /// One user fewer; the last leaves the block idle where it was kept, else free: no work that is
  /// enqueued touches it any more but on the stream that its next user's is enqueued on.
  /// O(log pages).
  void free(KvBlockRef block);

  /// A used block that is full, and is never written again, can be found by `key` from now on.
  /// False where another block is found by it already, and then nothing has changed.
  bool keep(KvBlockRef block, const BlockKey& key);
  [[nodiscard]] bool contains(const BlockKey& key) const { return kept_.contains(key); }
  /// The block kept under `key`, with one user more; nullopt if there is none.
  std::optional<KvBlockRef> use(const BlockKey& key);

  /// A used block that was kept is found no more, so that its user may write it. False, and nothing
  /// has changed, where it has other users beside.
  bool unkeep(KvBlockRef block);
  /// The idle block that was used longest ago: when, by the ticks of CachedPages, and its key.
  struct Idle {
    std::uint64_t since = 0;
    BlockKey key{};
  };
  /// nullopt: none is idle. O(kept blocks).
  [[nodiscard]] std::optional<Idle> oldest_idle() const;
  /// An idle block that is kept under `key` becomes free. For a `reason` the store may have it;
  /// nullopt: it is of no use any more, to the store neither. Nothing where it is used, or none is.
  void give_up(const BlockKey& key, std::optional<ledger::DropReason> reason);

  /// The page of the store that has a block kept under `key`; nullopt: none.
  [[nodiscard]] std::optional<PageId> stored(const BlockKey& key) const;
  /// Of what gives way in the store, such a page is the last now.
  void touch_stored(const BlockKey& key);
  /// Has the page come back from the store that has this block, which is not here: as a cached
  /// page, used last. False, and nothing has changed, where no page is free or cached.
  bool bring_back(const BlockKey& key);
  /// What keeping a block saves, as KvStore has it.
  void set_block_value(double value) { block_value_ = value; }
  /// What it holds is wrong: nothing of it goes to the store any more.
  void keep_nothing() { keeper_ = {}; }

  /// Where the block begins on the device; KvGeometry says how it goes on.
  [[nodiscard]] std::byte* address(KvBlockRef block) const {
    return pool_.device().page_address(block.page) + block.slot * geometry_.block_bytes;
  }
  [[nodiscard]] const KvGeometry& geometry() const { return geometry_; }
  /// Pages in use, and cached ones.
  [[nodiscard]] std::int64_t pages_used() const {
    return static_cast<std::int64_t>(pages_.size()) - pages_cached_;
  }
  [[nodiscard]] std::int64_t pages_cached() const { return pages_cached_; }
  [[nodiscard]] std::int64_t blocks_used() const { return blocks_used_; }
  [[nodiscard]] std::int64_t blocks_idle() const { return blocks_idle_; }
  /// Blocks that can be had without another page, idle ones on pages in use not counted.
  [[nodiscard]] std::int64_t blocks_spare() const;

  /// CHECK-fails unless the books agree with each other and with the pool.
  void check_invariants() const;

 private:
  /// Keys are as good as random.
  struct KeyHash {
    std::size_t operator()(const BlockKey& key) const { return key.low; }
  };
  struct Block {
    std::uint32_t users = 0;
    bool kept = false;
    BlockKey key{};             ///< Where kept.
    std::uint64_t idle_at = 0;  ///< Where idle: when its last user left.

    [[nodiscard]] bool free() const { return users == 0 && !kept; }
    [[nodiscard]] bool idle() const { return users == 0 && kept; }
  };
  struct Page {
    std::uint64_t taken = 0;  ///< How many pages it had taken before this one.
    std::uint32_t free_slots = 0;
    std::uint32_t used = 0;       ///< Blocks with users.
    std::uint64_t cached_at = 0;  ///< Where cached: its place in CachedPages.
    std::vector<Block> blocks{};
  };
  using PageEntry = std::map<PageId, Page>::value_type;

  PageEntry& entry(KvBlockRef block);
  bool find_room();
  void set_free_slots(PageEntry& entry, std::uint32_t free_slots);
  void begin_use(PageEntry& entry, std::uint32_t slot);
  void end_use(PageEntry& entry, std::uint32_t slot);
  void forget_idle(PageEntry& entry, std::uint32_t slot);
  void hand_over(const PageEntry& entry, std::uint32_t slot);
  Page remove_cached(PageId page);
  void drop(PageId page) override;
  void let_go(PageId id, const Page& page);
  void check_page(const PageEntry& entry) const;
  /// Where a page is in roomy_: of those as full the one that came first, so that which numbers
  /// pages have decides nothing.
  using Roomy = std::tuple<std::uint32_t, std::uint64_t, PageId>;
  static Roomy place_of(const PageEntry& entry) {
    return {entry.second.free_slots, entry.second.taken, entry.first};
  }

  PagePool& pool_;
  OwnerId owner_;
  KvGeometry geometry_;
  CachedPages& cached_;
  KvKeeper keeper_;
  double block_value_ = 0;
  std::map<PageId, Page> pages_{};
  std::uint64_t taken_ = 0;  ///< Pages so far.
  std::set<Roomy> roomy_{};  ///< Pages in use that have room, fullest first.
  std::unordered_map<BlockKey, KvBlockRef, KeyHash> kept_{};
  std::map<std::uint64_t, KvBlockRef> idle_{};  ///< On pages in use, by Block::idle_at.
  std::int64_t pages_cached_ = 0;
  std::int64_t blocks_used_ = 0;
  std::int64_t blocks_idle_ = 0;
};

}  // namespace heddle::memory
