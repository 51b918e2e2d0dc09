#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "core/worker_core.h"
#include "memory/cached_pages.h"
#include "memory/kv_cache.h"
#include "memory/page_pool.h"
#include "policy/admission.h"
#include "twin/contents.h"
#include "twin/prefix_marks.h"
#include "twin/unbacked_device.h"

namespace heddle::twin {

/// The pool of a worker's free pages, and the KV of its sequences, block by block, by the engine's
/// own books (memory::KvCache): pages come free with their last block. Prefixes that no sequence
/// uses any more stay, where that is wanted, until somebody needs their pages; who has marks of its
/// tokens finds them again.
class KvCount {
 public:
  /// Starts with the pages `free`, of a host whose pages have numbers below `page_count`.
  KvCount(std::uint64_t page_count, std::span<const PageId> free, bool keep_prefixes)
      : device_(page_count), pool_(device_, free), keep_prefixes_(keep_prefixes) {}
  /// Has the KV written to `contents`, which outlives it, and read from there, as that of `life`.
  /// Sequences have marks then.
  void watch(Contents& contents, Life life);

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
  /// Undoes a grow() of a sequence that was to compute and did not.
  void shrink(ModelId model, core::SequenceId sequence);
  /// So many of its tokens have KV now: full blocks are kept as prefixes, and those that no later
  /// token attends to are free. `marks` may be empty.
  void compute(ModelId model,
               core::SequenceId sequence,
               std::int64_t tokens,
               const PrefixMarks& marks);
  /// Of the first `most` tokens of a sequence without blocks, how many have KV that is kept: their
  /// blocks are the sequence's now. Only models with one group and no window find any.
  std::int64_t find_prefix(ModelId model,
                           core::SequenceId sequence,
                           std::int64_t most,
                           const PrefixMarks& marks);
  /// Pages of another device come in for KV of the model, and go back: the highest `count` that
  /// hold none.
  void lend(ModelId model, const std::vector<PageId>& pages);
  [[nodiscard]] std::vector<PageId> give_back(ModelId model, std::int64_t count);
  /// The KV of the first `tokens` tokens goes to such pages, in whole blocks of all groups, as far
  /// as there is room; how many are there then. Of models without a window.
  std::int64_t move_out(ModelId model,
                        core::SequenceId sequence,
                        std::int64_t tokens,
                        const PrefixMarks& marks);
  /// All of it comes back, if there is room; how many are away then.
  std::int64_t move_home(ModelId model, core::SequenceId sequence, const PrefixMarks& marks);

  /// Those that have blocks.
  [[nodiscard]] std::vector<core::SequenceId> sequences(ModelId model) const;
  /// How many of its first tokens are away.
  [[nodiscard]] std::int64_t away(ModelId model, core::SequenceId sequence) const;

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
    std::vector<memory::KvBlockRef> away{};  ///< Of the first `gone` tokens.
    std::int64_t gone = 0;                   ///< A block that they end in is here as well.
    std::size_t live = 0;
    std::size_t kept = 0;
    std::int64_t computed = 0;  ///< Tokens.
  };
  /// Lent pages and the blocks on them.
  struct Guests {
    explicit Guests(UnbackedDevice& device) : pool(device, {}) {}
    memory::PagePool pool;
    memory::CachedPages no_prefixes{};
    std::deque<memory::KvCache> caches{};  ///< One per group.
  };
  struct Model {
    std::vector<policy::KvGroup> groups{};
    std::deque<memory::KvCache> caches{};  ///< One per group.
    std::unique_ptr<Guests> guests{};
    std::map<core::SequenceId, std::vector<Blocks>> sequences{};
  };
  static void cut(memory::KvCache& cache, Blocks& blocks, std::size_t count);
  static std::optional<std::vector<std::vector<memory::KvBlockRef>>> allocate(
      std::deque<memory::KvCache>& caches, const std::vector<std::size_t>& counts);
  void copy(memory::KvBlockRef from,
            memory::KvBlockRef to,
            std::int64_t from_tokens,
            std::int64_t to_tokens,
            const PrefixMarks& marks);
  void write(const Blocks& blocks,
             std::int64_t block_tokens,
             std::int64_t tokens,
             const PrefixMarks& marks);

  UnbackedDevice device_;
  memory::PagePool pool_;
  memory::CachedPages cached_{};
  bool keep_prefixes_;
  Contents* contents_ = nullptr;
  Life life_{};
  bool changed_ = false;
  std::uint64_t prefixes_ = 0;  ///< Without marks, no two are the same.
  std::map<ModelId, Model> models_{};
};

}  // namespace heddle::twin
