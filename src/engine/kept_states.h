#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "memory/cached_pages.h"
#include "memory/kv_cache.h"
#include "memory/page_pool.h"

namespace heddle::engine {

/// A copy of the state that a sequence has behind its first `length` tokens, which is found by the
/// key of the KV block that ends there: it says all that the state depends on.
struct StateCopy {
  std::int64_t length = 0;
  memory::BlockKey key{};
  bool lasting = false;                      ///< Else its sequence's next copy takes its place.
  std::vector<memory::KvBlockRef> blocks{};  ///< Of each group of states one.
};

/// What a sequence has to do with copies of states. Changed by KeptStates alone.
struct SequenceStates {
  /// That it goes on from, until it has blocks of its own. Not written meanwhile.
  std::optional<StateCopy> resumed{};
  std::vector<StateCopy> copies{};         ///< That its next pass makes, ascending.
  std::vector<memory::BlockKey> known{};   ///< That it has found or made, the longest last.
  std::optional<memory::BlockKey> last{};  ///< Its own, that the next one takes the place of.
  std::int64_t parted = 0;  ///< Where its tokens part from those that KV is cached of.
};

/// Copies of the states of a model's sequences among its cached prefixes, on the groups of states
/// behind those of keys and values. They are idle blocks like cached KV: found by key, dropped by
/// last use, kept by the host. A sequence that ends uses its copies last, just before its KV: so a
/// copy is older than the KV that it is of no use without, and goes before that.
///
/// What goes on from a copy begins with a copy of it, made at once on a CPU and in the order of its
/// stream on a GPU: there nobody but that stream's work touches blocks.
///
/// Copies have at most half of the pages that KV could have: those of the model's KV, cached ones
/// and free ones. Beyond that the model's oldest copy goes. Used by one thread.
class KeptStates {
 public:
  /// The caches from `first` on are those of states. All outlive it and do not move.
  KeptStates(memory::PagePool& pool,
             memory::CachedPages& cached,
             std::deque<memory::KvCache>& caches,
             std::size_t first);

  /// Blocks are copied by `stream`, which outlives it, in the order of what it does; by the host
  /// where this is not called.
  void copy_by(device::Stream& stream) { stream_ = &stream; }

  /// Whether there are any states.
  [[nodiscard]] bool any() const { return !caches_.empty(); }
  /// Whether a copy is in the caches, or `stored` with the rest in the store.
  [[nodiscard]] bool contains(const memory::BlockKey& key, bool stored) const;

  /// The sequence goes on from a copy that is there.
  void hold(SequenceStates& states, std::int64_t length, const memory::BlockKey& key);
  /// Fills a sequence's own blocks, one for each group, from the copy that it goes on from, which
  /// it gives back; nothing where it goes on from none.
  void resume(SequenceStates& states, std::span<const memory::KvBlockRef> own);
  /// The blocks of that copy themselves, which is a copy no more: for where there is no room.
  /// Empty, and nothing has changed, where others go on from it as well, or there is none.
  std::vector<memory::KvBlockRef> take_over(SequenceStates& states);

  /// Has blocks for a copy that the next pass makes; none where it is there already, or where there
  /// is no room. `kv_pages` is what KV of the model has.
  void prepare(SequenceStates& states, const StateCopy& wanted, std::int64_t kv_pages);
  /// The pass has made its copies: others find them.
  void keep(SequenceStates& states);
  /// It has not.
  void drop(SequenceStates& states);
  /// The sequence ends, before its KV does.
  void leave(SequenceStates& states);

 private:
  [[nodiscard]] bool make_room(std::int64_t kv_pages);
  [[nodiscard]] std::int64_t pages_cached() const;
  [[nodiscard]] memory::BlockKey oldest_copy() const;
  [[nodiscard]] std::vector<memory::KvBlockRef> allocate();
  void free(const std::vector<memory::KvBlockRef>& blocks);
  static void know(SequenceStates& states, const memory::BlockKey& key);

  device::Stream* stream_ = nullptr;  ///< nullptr: the host copies.
  memory::PagePool* pool_;
  memory::CachedPages* cached_;
  std::vector<memory::KvCache*> caches_{};
  std::int64_t prepared_ = 0;  ///< Copies that passes are about to make.
};

}  // namespace heddle::engine
