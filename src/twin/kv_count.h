#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "base/ids.h"
#include "core/worker_core.h"
#include "memory/cached_pages.h"
#include "memory/kv_cache.h"
#include "memory/page_pool.h"
#include "policy/admission.h"
#include "twin/unbacked_device.h"

namespace heddle::twin {

/// The pool of a worker's free pages, and the KV of its sequences, block by block, by the engine's
/// own books (memory::KvCache): pages come free with their last block. Prefixes that no sequence
/// uses any more stay, where that is wanted, until somebody needs their pages; nobody finds them
/// again.
class KvCount {
 public:
  /// Starts with the pages `free`, of a host whose pages have numbers below `page_count`.
  KvCount(std::uint64_t page_count, std::span<const PageId> free, bool keep_prefixes)
      : device_(page_count), pool_(device_, free), keep_prefixes_(keep_prefixes) {}

  /// From the pool, which has one: cached prefixes are no part of it.
  [[nodiscard]] PageId take();
  void put(PageId page) { pool_.adopt({&page, 1}); }
  [[nodiscard]] std::int64_t free() const { return pool_.free_count(); }

  void add_model(ModelId model, const std::vector<policy::KvGroup>& groups);
  /// Its sequences are gone.
  void drop_model(ModelId model);

  /// The sequence gets the blocks that its first `tokens` tokens need. False, and nothing has
  /// changed, where there are no pages for them, not even of cached prefixes.
  bool grow(ModelId model, core::SequenceId sequence, std::int64_t tokens);
  /// So many of its tokens have KV now: full blocks are kept as prefixes, and those that no later
  /// token attends to are free.
  void compute(ModelId model, core::SequenceId sequence, std::int64_t tokens);
  /// It is gone, and its blocks are free or hold its prefix.
  void remove(ModelId model, core::SequenceId sequence);
  /// Frees cached pages until there are at most so many.
  void trim(std::int64_t keep);

  /// Whether that changed since the last call.
  [[nodiscard]] bool changed();
  [[nodiscard]] core::KvCounted counted() const;

 private:
  /// Blocks of a sequence in one group; those before `live` are free, those before `kept` are kept.
  struct Blocks {
    std::vector<memory::KvBlockRef> all{};
    std::size_t live = 0;
    std::size_t kept = 0;
  };
  struct Model {
    std::vector<policy::KvGroup> groups{};
    std::deque<memory::KvCache> caches{};  ///< One per group.
    std::map<core::SequenceId, std::vector<Blocks>> sequences{};
  };
  void shrink(memory::KvCache& cache, Blocks& blocks, std::size_t count);

  UnbackedDevice device_;
  memory::PagePool pool_;
  memory::CachedPages cached_{};
  bool keep_prefixes_;
  bool changed_ = false;
  std::uint64_t prefixes_ = 0;  ///< No two are the same.
  std::map<ModelId, Model> models_{};
};

}  // namespace heddle::twin
