#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/siphash.h"
#include "memory/page_pool.h"

namespace heddle::memory {

/// Stands for all that decides what a block holds: the tokens from the first of the sequence to the
/// last of the block, and whose they are.
using BlockKey = Digest;
/// The keys of the blocks of a page, by slot; none where a slot holds nothing that can be found.
using SlotKeys = std::vector<std::optional<BlockKey>>;

/// Whose KV it is: a model, and of its KV groups which. Ids never name another model.
struct KvOrigin {
  ModelId model{};
  std::uint64_t group = 0;
  friend auto operator<=>(const KvOrigin&, const KvOrigin&) = default;
};

struct KvStoreCounts {
  std::uint64_t kept_pages = 0;       ///< That came as a whole.
  std::uint64_t kept_blocks = 0;      ///< Blocks that were copied.
  std::uint64_t returned_pages = 0;   ///< That went back to a cache.
  std::uint64_t displaced_pages = 0;  ///< Given up for others.
};

/// Owns a store's pages in its pool.
inline constexpr OwnerId kKvStoreOwner{~std::uint64_t{3}};

/// KV blocks that caches have let go of: their models have left the device, or others needed the
/// memory. It has pages of the pool of its own, a budget that never changes. A whole page comes in,
/// and goes back, in exchange for a free one, so nothing is copied; a single block is copied, which
/// takes memory that the host addresses.
///
/// What gives way is chosen by GreedyDual-Size (Cao and Irani, USITS 1997, section 4): a page that
/// comes in has priority L + value, the least goes first, and L becomes its priority. Pages are of
/// one size, so `value` is what computing their blocks would take, in any one unit. Equal ones go
/// by age. Used by one thread.
class KvStore {
 public:
  /// Takes `pages` pages of the pool, which outlives it and has them free.
  KvStore(PagePool& pool, std::int64_t pages);
  ~KvStore();
  KvStore(const KvStore&) = delete;
  KvStore& operator=(const KvStore&) = delete;

  [[nodiscard]] bool contains(const KvOrigin& origin, const BlockKey& key) const {
    return found_.contains({origin, key});
  }
  /// The page that has a block; nullopt where none has.
  [[nodiscard]] std::optional<PageId> page_of(const KvOrigin& origin, const BlockKey& key) const;

  /// `page` of `owner`, which holds these blocks, is the store's from now on, and `owner` has given
  /// a page back to the pool. False, and nothing has changed, where all of it is here already or
  /// the store has no page to give. O(blocks of a page * log pages).
  bool keep_page(
      OwnerId owner, PageId page, const KvOrigin& origin, const SlotKeys& keys, double value);
  /// Copies one block in, of `bytes` bytes; a page has `slots` of them.
  void keep_block(const KvOrigin& origin,
                  const BlockKey& key,
                  std::span<const std::byte> block,
                  std::size_t slots,
                  double value);

  /// As if the page that has this block had come in just now; nothing where none has.
  void touch(const KvOrigin& origin, const BlockKey& key);

  /// A page on its way back to a cache.
  struct Returning {
    PageId page{};
    SlotKeys keys{};
  };
  /// Takes out the page that has this block, which it has. give_back() follows.
  Returning take_out(const KvOrigin& origin, const BlockKey& key);
  /// The page is `owner`'s from now on, in exchange for a free page, which the pool has.
  void give_back(const Returning& returning, OwnerId owner);

  /// Forgets all of a model.
  void forget(ModelId model);

  /// Pages there are, and those that hold blocks.
  [[nodiscard]] std::int64_t pages() const { return total_; }
  [[nodiscard]] std::int64_t held() const { return static_cast<std::int64_t>(pages_.size()); }
  [[nodiscard]] const KvStoreCounts& counts() const { return counts_; }

  /// CHECK-fails unless the books agree with each other and with the pool.
  void check_invariants() const;

 private:
  struct Key {
    KvOrigin origin{};
    BlockKey block{};
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {  // Keys of blocks are as good as random.
    std::size_t operator()(const Key& key) const {
      return key.block.low ^ key.origin.model.value() ^ (key.origin.group << 32U);
    }
  };
  struct Page {
    KvOrigin origin{};
    SlotKeys keys{};
    double value = 0;
    double priority = 0;
    std::uint64_t tick = 0;
  };
  using Order = std::tuple<double, std::uint64_t, PageId>;

  [[nodiscard]] static Order order_of(PageId id, const Page& page) {
    return {page.priority, page.tick, id};
  }
  void refresh(PageId id, Page& page, double more);
  [[nodiscard]] std::optional<PageId> find_room();
  void forget(PageId page);
  SlotKeys remove(PageId page);

  PagePool& pool_;
  std::int64_t total_;
  std::vector<PageId> free_{};
  std::map<PageId, Page> pages_{};
  std::unordered_map<Key, PageId, KeyHash> found_{};
  std::set<Order> order_{};
  std::map<KvOrigin, PageId> open_{};  ///< Has slots for further blocks.
  double least_ = 0;                   ///< L.
  std::uint64_t ticks_ = 0;
  KvStoreCounts counts_{};
};

}  // namespace heddle::memory
