#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kept_states.h"
#include "engine/kv_plan.h"
#include "engine/prefix_keys.h"
#include "memory/cached_pages.h"
#include "memory/kv_cache.h"
#include "memory/page_pool.h"
#include "ops/guest_attention.h"

namespace heddle::engine {

/// The KV blocks of one sequence, per group of the plan. Made by ModelKv, which owns the books.
class SequenceKv {
 public:
  /// The blocks of a group: entry i holds positions [i T, (i + 1) T), and entries before
  /// `first_live` are gone.
  struct Group {
    std::size_t first_live = 0;
    std::vector<memory::KvBlockRef> blocks{};
    std::vector<memory::BlockKey> keys{};  ///< Of the first blocks of its tokens, as far as needed.
    std::size_t offered = 0;  ///< Blocks below are known to the cache, or never will be.
    /// Blocks of the first positions on lent pages (WEAVER). `blocks` before `first_live` have gone
    /// for them; where the border is within a block, that is on both sides.
    std::vector<memory::KvBlockRef> guests{};
  };

  [[nodiscard]] const std::vector<Group>& groups() const { return groups_; }
  [[nodiscard]] const SequenceStates& states() const { return states_; }

 private:
  friend class ModelKv;
  friend class StateCopies;
  friend class StoredKv;
  std::vector<Group> groups_{};
  SequenceStates states_{};
  std::int64_t guest_tokens_ = 0;
};

/// The KV caches of one model (or of a range of its layers) on one device. Used by one thread.
class ModelKv {
 public:
  /// `pool`, `cached` and what keeps blocks that are let go of outlive it; `owner` is the lease
  /// that counts the pages, lent ones too. The keeper's origin names the model, and its group is no
  /// matter.
  ModelKv(memory::PagePool& pool,
          memory::OwnerId owner,
          KvPlan plan,
          memory::CachedPages& cached,
          const memory::KvKeeper& keeper = {});

  /// A sequence without blocks.
  [[nodiscard]] SequenceKv make_sequence() const;
  /// Gives `sequence` the blocks that positions [0, tokens) need beyond those it has. All or
  /// kResourceExhausted, and then nothing has changed.
  Result<void> grow(SequenceKv& sequence, std::int64_t tokens);
  /// Frees the blocks that hold no position below `tokens`: undoes a grow().
  void shrink(SequenceKv& sequence, std::int64_t tokens);
  /// Frees the blocks that no token from position `next` on attends to.
  void slide(SequenceKv& sequence, std::int64_t next);
  /// Frees all blocks.
  void clear(SequenceKv& sequence) { shrink(sequence, 0); }

  /// Pages of another device come in, to have guests (WEAVER). They stay the other's, who can
  /// address them as well. Page 0 is at `memory`, or, nullptr, where this device's is.
  void lend(std::span<const memory::PageId> pages, std::byte* memory);
  /// Where page 0 of what is lent is.
  [[nodiscard]] std::byte* lent_memory() const { return guests_->memory; }
  /// Who runs attention over them; nullptr: nobody, so that it is run here. Outlives it, or the
  /// next set_host().
  void set_host(ops::AttentionHost* host) { host_ = host; }
  [[nodiscard]] ops::AttentionHost* host() const { return host_; }
  /// What a host is told of a sequence.
  [[nodiscard]] ops::GuestSequence guest_sequence(const SequenceKv& sequence) const;
  /// Gives up to `count` lent pages back that have no guests, the highest first.
  std::vector<memory::PageId> give_back(std::int64_t count);
  /// Moves the computed positions below `tokens` of the groups without a window to lent pages,
  /// and frees the blocks that hold no other. `tokens` is a multiple of
  /// border_tokens(), and not below what is there already. All or kResourceExhausted, and then
  /// nothing has changed; or what `stream`, which copies and is waited for, has to report. Only on
  /// `stream` is there work that touches the sequence.
  Result<void> move_out(device::Stream& stream, SequenceKv& sequence, std::int64_t tokens);
  /// Moves all that is away back, in the same way.
  Result<void> move_home(device::Stream& stream, SequenceKv& sequence);
  /// Positions of `sequence` that are away.
  [[nodiscard]] static std::int64_t guest_tokens(const SequenceKv& sequence) {
    return sequence.guest_tokens_;
  }
  /// What move_out() moves comes in multiples of this: attention may be divided there.
  [[nodiscard]] std::int64_t border_tokens() const;
  /// Lent pages, and those of them that have guests.
  [[nodiscard]] std::int64_t lent_pages() const { return guests_->pool.size(); }
  [[nodiscard]] std::int64_t guest_pages() const {
    return guests_->pool.size() - guests_->pool.free_count();
  }

  /// Gives a sequence without blocks those of the longest prefix of `tokens` that the cache has, to
  /// read and never to write; gives its length. A prefix ends where a block of every group ends,
  /// and has no more than what comes after it attends to: of a group with a window the blocks
  /// within it. Where layers keep a state, a copy of it is there as well.
  std::int64_t take_prefix(SequenceKv& sequence,
                           const PrefixKeys& keys,
                           std::span<const TokenId> tokens);
  /// Lets other sequences find the full blocks of `tokens`, the computed ones of `sequence`. To be
  /// called before slide(). Of each group, blocks that begin below `incomplete` are left out; none
  /// are where it is empty.
  void keep_prefix(SequenceKv& sequence,
                   const PrefixKeys& keys,
                   std::span<const TokenId> tokens,
                   std::span<const std::int64_t> incomplete = {});
  /// The longest prefix of the first `tokens` tokens of a sequence, whose keys are known, that
  /// take_prefix() would find.
  [[nodiscard]] std::int64_t cached_length(const SequenceKv& sequence, std::int64_t tokens) const;
  /// Where a block of its own pages begins on the device.
  [[nodiscard]] std::byte* address(std::size_t group, memory::KvBlockRef block) const {
    return caches_[group].address(block);
  }

  /// The number of a block, from the device's first page on: what block tables hold.
  [[nodiscard]] std::int32_t block_number(std::size_t group, memory::KvBlockRef block) const;

  [[nodiscard]] const KvPlan& plan() const { return plan_; }
  /// Pages that hold blocks of sequences, cached ones not counted.
  [[nodiscard]] std::int64_t pages_used() const;
  /// Pages that a sequence of `tokens` tokens, at most `step_tokens` of which are computed at once,
  /// needs when it is alone on its pages.
  [[nodiscard]] std::int64_t pages_for(std::int64_t tokens, std::int64_t step_tokens) const;

 private:
  friend class StateCopies;
  friend class StoredKv;

  /// Lent pages and the blocks on them.
  struct Guests {
    explicit Guests(device::Device& device) : pool(device, {}) {}
    memory::PagePool pool;
    std::byte* memory = nullptr;  ///< Where its page 0 is.
    memory::CachedPages no_prefixes{};
    std::deque<memory::KvCache> caches{};  ///< Per group.
  };
  /// Whose blocks count as there; the last has KV of the cache without a copy of the state.
  enum class Among : std::uint8_t { kCache, kCacheAndStore, kWithoutStates };
  [[nodiscard]] std::int64_t cached_length(const SequenceKv& sequence,
                                           std::int64_t tokens,
                                           Among among) const;
  [[nodiscard]] bool has_state(const SequenceKv& sequence, std::int64_t length, Among among) const;
  [[nodiscard]] static const memory::BlockKey& key_of(const SequenceKv& sequence,
                                                      const KvPlan& plan,
                                                      std::int64_t length);
  void extend_keys(SequenceKv& sequence,
                   const PrefixKeys& keys,
                   std::span<const TokenId> tokens) const;
  bool resume_in_place(SequenceKv& sequence);
  void resume(SequenceKv& sequence);
  Result<void> grow_group(SequenceKv& sequence, std::size_t group, std::int64_t tokens);
  void drop_back(SequenceKv& sequence, std::size_t group, std::size_t blocks);
  [[nodiscard]] std::size_t block_bytes(std::size_t group) const {
    return plan_.groups[group].geometry.block_bytes;
  }
  [[nodiscard]] std::byte* guest_address(std::size_t group, memory::KvBlockRef block) const;
  void copy_block(device::Stream& stream,
                  std::size_t group,
                  std::byte* target,
                  const std::byte* source) const;
  void drop_guests(SequenceKv::Group& own, std::size_t group, std::size_t blocks);
  [[nodiscard]] std::size_t first_needed(std::size_t group, std::int64_t next) const;

  KvPlan plan_;
  std::deque<memory::KvCache> caches_{};  ///< Per group. A deque: caches do not move.
  KeptStates states_;
  std::unique_ptr<Guests> guests_;  ///< It does not move.
  ops::AttentionHost* host_ = nullptr;
};

}  // namespace heddle::engine
