#include "memory/kv_cache.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::memory {

KvCache::KvCache(PagePool& pool,
                 OwnerId owner,
                 const KvGeometry& geometry,
                 CachedPages& cached,
                 const KvKeeper& keeper)
    : pool_(pool), owner_(owner), geometry_(geometry), cached_(cached), keeper_(keeper) {
  HEDDLE_CHECK(geometry_.blocks_per_page > 0 && geometry_.block_tokens > 0);
  HEDDLE_CHECK(geometry_.blocks_per_page * geometry_.block_bytes ==
               pool.device().properties().page_bytes);
}

KvCache::~KvCache() {
  std::map<std::uint64_t, PageId> by_age;  // What was used last is to be kept longest.
  for (const auto& [id, page] : pages_) {
    if (page.used > 0) {
      pool_.put(owner_, {&id, 1});
      continue;
    }
    cached_.by_age_.erase(page.cached_at);
    ++cached_.dropped_[static_cast<std::size_t>(ledger::DropReason::kClosed)];
    by_age.emplace(page.cached_at, id);
  }
  for (const auto& [age, id] : by_age) {
    let_go(id, pages_.at(id));
  }
}

KvCache::PageEntry& KvCache::entry(KvBlockRef block) {
  const auto found = pages_.find(block.page);
  HEDDLE_CHECK(found != pages_.end());
  HEDDLE_CHECK(block.slot < geometry_.blocks_per_page);
  return *found;
}

Result<KvBlockRef> KvCache::allocate() {
  if (roomy_.empty() && !find_room()) {
    return Error{Code::kResourceExhausted,
                 "allocate a block of KV: no page is free or cached, and all blocks of the " +
                     std::to_string(pages_.size()) + " pages are in use"};
  }
  PageEntry& page = entry({.page = std::get<PageId>(*roomy_.begin()), .slot = 0});
  const auto& blocks = page.second.blocks;
  const auto slot = static_cast<std::uint32_t>(
      std::find_if(blocks.begin(), blocks.end(), [](const Block& b) { return b.free(); }) -
      blocks.begin());
  set_free_slots(page, page.second.free_slots - 1);
  begin_use(page, slot);
  return KvBlockRef{.page = page.first, .slot = slot};
}

/// A free page; else the idle block on a page in use, which is of use to nobody else; else a page
/// that is cached, which costs all its blocks.
bool KvCache::find_room() {
  if (pool_.free_count() == 0 && !idle_.empty()) {
    const KvBlockRef oldest = idle_.begin()->second;
    hand_over(entry(oldest), oldest.slot);
    forget_idle(entry(oldest), oldest.slot);
    return true;
  }
  if (pool_.free_count() == 0 && !cached_.drop_oldest(ledger::DropReason::kKv)) {
    return false;
  }
  const auto taken = pool_.take(owner_, 1);
  HEDDLE_CHECK(taken.has_value());
  const auto added = pages_.emplace(taken->front(),
                                    Page{.taken = taken_++,
                                         .free_slots = geometry_.blocks_per_page,
                                         .blocks = std::vector<Block>(geometry_.blocks_per_page)});
  roomy_.insert(place_of(*added.first));
  return true;
}

void KvCache::free(KvBlockRef block) {
  PageEntry& page = entry(block);
  HEDDLE_CHECK(page.second.blocks[block.slot].users > 0);
  end_use(page, block.slot);
}

bool KvCache::keep(KvBlockRef block, const BlockKey& key) {
  Block& kept = entry(block).second.blocks[block.slot];
  HEDDLE_CHECK(kept.users > 0 && !kept.kept);
  if (!kept_.emplace(key, block).second) {
    return false;
  }
  kept.kept = true;
  kept.key = key;
  return true;
}

std::optional<KvBlockRef> KvCache::use(const BlockKey& key) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) {
    return std::nullopt;
  }
  begin_use(entry(found->second), found->second.slot);
  return found->second;
}

/// Keeps the order of fullness as a page's free slots change. The page is in use.
void KvCache::set_free_slots(PageEntry& entry, std::uint32_t free_slots) {
  if (entry.second.free_slots > 0) {
    roomy_.erase(place_of(entry));
  }
  entry.second.free_slots = free_slots;
  if (free_slots > 0) {
    roomy_.insert(place_of(entry));
  }
}

/// One user more. A free block's slot has left free_slots already.
void KvCache::begin_use(PageEntry& entry, std::uint32_t slot) {
  auto& [id, page] = entry;
  Block& block = page.blocks[slot];
  if (block.users++ > 0) {
    return;
  }
  ++blocks_used_;
  blocks_idle_ -= block.kept ? 1 : 0;
  if (page.used++ == 0 && block.kept) {  // The page was cached.
    cached_.by_age_.erase(page.cached_at);
    --pages_cached_;
    set_free_slots(entry, page.free_slots);
    for (std::uint32_t other = 0; other < page.blocks.size(); ++other) {
      if (page.blocks[other].idle()) {
        idle_.emplace(page.blocks[other].idle_at, KvBlockRef{.page = id, .slot = other});
      }
    }
  } else if (block.kept) {
    idle_.erase(block.idle_at);
  }
}

void KvCache::end_use(PageEntry& entry, std::uint32_t slot) {
  auto& [id, page] = entry;
  Block& block = page.blocks[slot];
  if (--block.users > 0) {
    return;
  }
  --blocks_used_;
  --page.used;
  if (block.kept) {
    block.idle_at = cached_.tick();
    ++blocks_idle_;
    idle_.emplace(block.idle_at, KvBlockRef{.page = id, .slot = slot});
  } else {
    set_free_slots(entry, page.free_slots + 1);
  }
  if (page.used > 0) {
    return;
  }
  roomy_.erase(place_of(entry));
  if (page.free_slots == geometry_.blocks_per_page) {
    const PageId empty = id;
    pages_.erase(empty);
    pool_.put(owner_, {&empty, 1});
    return;
  }
  for (const Block& idle : page.blocks) {
    idle_.erase(idle.idle_at);
  }
  page.cached_at = cached_.tick();
  cached_.by_age_.emplace(page.cached_at, CachedPages::Place{.cache = this, .page = id});
  ++pages_cached_;
}

/// An idle block of a page in use becomes free.
void KvCache::forget_idle(PageEntry& entry, std::uint32_t slot) {
  Block& block = entry.second.blocks[slot];
  HEDDLE_CHECK(block.idle() && entry.second.used > 0);
  idle_.erase(block.idle_at);
  --blocks_idle_;
  kept_.erase(block.key);
  block = {};
  set_free_slots(entry, entry.second.free_slots + 1);
}

/// The store, where there is one, has a copy of a kept block.
void KvCache::hand_over(const PageEntry& entry, std::uint32_t slot) {
  if (keeper_.store != nullptr) {
    keeper_.store->keep_block(keeper_.origin,
                              entry.second.blocks[slot].key,
                              {address({.page = entry.first, .slot = slot}), geometry_.block_bytes},
                              geometry_.blocks_per_page,
                              block_value_);
  }
}

/// A cached page leaves the books, and is its owner's still.
KvCache::Page KvCache::remove_cached(PageId id) {
  const auto found = pages_.find(id);
  HEDDLE_CHECK(found != pages_.end() && found->second.used == 0);
  for (const Block& block : found->second.blocks) {
    if (block.kept) {
      --blocks_idle_;
      kept_.erase(block.key);
    }
  }
  cached_.by_age_.erase(found->second.cached_at);
  --pages_cached_;
  Page page = std::move(found->second);
  pages_.erase(found);
  return page;
}

void KvCache::drop(PageId id) {
  let_go(id, remove_cached(id));
}

bool KvCache::unkeep(KvBlockRef ref) {
  Block& block = entry(ref).second.blocks[ref.slot];
  HEDDLE_CHECK(block.users > 0 && block.kept);
  if (block.users > 1) {
    return false;
  }
  kept_.erase(block.key);
  block.kept = false;
  return true;
}

std::optional<KvCache::Idle> KvCache::oldest_idle() const {
  std::optional<Idle> oldest;
  for (const auto& [key, ref] : kept_) {
    const Block& block = pages_.at(ref.page).blocks[ref.slot];
    if (block.idle() && (!oldest || block.idle_at < oldest->since)) {
      oldest = Idle{.since = block.idle_at, .key = key};
    }
  }
  return oldest;
}

void KvCache::give_up(const BlockKey& key, std::optional<ledger::DropReason> reason) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) {
    return;
  }
  const KvBlockRef ref = found->second;
  PageEntry& page = entry(ref);
  Block& block = page.second.blocks[ref.slot];
  if (!block.idle()) {
    return;
  }
  if (page.second.used == 0 && page.second.free_slots + 1 == geometry_.blocks_per_page) {
    if (reason) {  // The page has nothing else.
      ++cached_.dropped_[static_cast<std::size_t>(*reason)];
      drop(ref.page);
    } else {
      remove_cached(ref.page);
      pool_.put(owner_, {&ref.page, 1});
    }
    return;
  }
  if (reason) {
    hand_over(page, ref.slot);
  }
  if (page.second.used > 0) {
    forget_idle(page, ref.slot);
    return;
  }
  kept_.erase(found);
  --blocks_idle_;
  block = {};
  ++page.second.free_slots;
}

/// A page that was cached goes to the store, which gives the pool another, or to the pool itself.
void KvCache::let_go(PageId id, const Page& page) {
  if (keeper_.store != nullptr) {
    SlotKeys keys;
    std::int64_t blocks = 0;
    for (const Block& block : page.blocks) {
      keys.push_back(block.kept ? std::optional(block.key) : std::nullopt);
      blocks += block.kept ? 1 : 0;
    }
    if (keeper_.store->keep_page(
            owner_, id, keeper_.origin, keys, block_value_ * static_cast<double>(blocks))) {
      return;
    }
  }
  pool_.put(owner_, {&id, 1});
}

std::optional<PageId> KvCache::stored(const BlockKey& key) const {
  return keeper_.store == nullptr ? std::nullopt : keeper_.store->page_of(keeper_.origin, key);
}

void KvCache::touch_stored(const BlockKey& key) {
  if (keeper_.store != nullptr) {
    keeper_.store->touch(keeper_.origin, key);
  }
}

bool KvCache::bring_back(const BlockKey& key) {
  HEDDLE_CHECK(stored(key).has_value() && !kept_.contains(key));
  if (pool_.free_count() == 0 && cached_.count() == 0) {
    return false;
  }
  const KvStore::Returning back = keeper_.store->take_out(keeper_.origin, key);
  HEDDLE_CHECK(back.keys.size() == geometry_.blocks_per_page);
  if (pool_.free_count() == 0) {
    cached_.drop_oldest(ledger::DropReason::kKv);
  }
  keeper_.store->give_back(back, owner_);
  Page page{.taken = taken_++,
            .free_slots = geometry_.blocks_per_page,
            .cached_at = cached_.tick(),
            .blocks = std::vector<Block>(geometry_.blocks_per_page)};
  for (std::uint32_t slot = 0; slot < geometry_.blocks_per_page; ++slot) {
    const std::optional<BlockKey>& kept = back.keys[slot];
    if (kept && kept_.emplace(*kept, KvBlockRef{.page = back.page, .slot = slot}).second) {
      page.blocks[slot] = {.kept = true, .key = *kept, .idle_at = cached_.tick()};
      --page.free_slots;
      ++blocks_idle_;
    }
  }
  cached_.by_age_.emplace(page.cached_at, CachedPages::Place{.cache = this, .page = back.page});
  ++pages_cached_;
  pages_.emplace(back.page, std::move(page));
  return true;
}

std::int64_t KvCache::blocks_spare() const {
  std::int64_t spare = 0;
  for (const Roomy& page : roomy_) {
    spare += std::get<std::uint32_t>(page);
  }
  return spare;
}

void KvCache::check_page(const PageEntry& entry) const {
  const auto& [id, page] = entry;
  HEDDLE_CHECK(pool_.owner_of(id) == owner_);
  std::uint32_t free_slots = 0;
  std::uint32_t used = 0;
  for (std::uint32_t slot = 0; slot < geometry_.blocks_per_page; ++slot) {
    const Block& block = page.blocks[slot];
    const KvBlockRef ref{.page = id, .slot = slot};
    free_slots += block.free() ? 1 : 0;
    used += block.users > 0 ? 1 : 0;
    HEDDLE_CHECK(!block.kept || kept_.at(block.key) == ref);
    HEDDLE_CHECK(!block.idle() || page.used == 0 || idle_.at(block.idle_at) == ref);
  }
  HEDDLE_CHECK(free_slots == page.free_slots && free_slots < geometry_.blocks_per_page);
  HEDDLE_CHECK(used == page.used);
  HEDDLE_CHECK(roomy_.contains(place_of(entry)) == (free_slots > 0 && used > 0));
  if (used == 0) {
    const auto cached = cached_.by_age_.find(page.cached_at);
    HEDDLE_CHECK(cached != cached_.by_age_.end() && cached->second.page == id);
    HEDDLE_CHECK(cached->second.cache == this);
  }
}

void KvCache::check_invariants() const {
  std::int64_t used = 0;
  std::int64_t cached = 0;
  std::size_t roomy = 0;
  std::size_t kept = 0;
  std::size_t evictable = 0;
  std::int64_t idle = 0;
  for (const PageEntry& entry : pages_) {
    check_page(entry);
    const Page& page = entry.second;
    used += page.used;
    cached += page.used == 0 ? 1 : 0;
    roomy += page.free_slots > 0 && page.used > 0 ? 1U : 0U;
    for (const Block& block : page.blocks) {
      kept += block.kept ? 1U : 0U;
      idle += block.idle() ? 1 : 0;
      evictable += block.idle() && page.used > 0 ? 1U : 0U;
    }
  }
  HEDDLE_CHECK(used == blocks_used_ && cached == pages_cached_);
  HEDDLE_CHECK(roomy == roomy_.size() && kept == kept_.size());
  HEDDLE_CHECK(evictable == idle_.size() && idle == blocks_idle_);
  HEDDLE_CHECK(pool_.owned_count(owner_) >= static_cast<std::int64_t>(pages_.size()));
}

}  // namespace heddle::memory
