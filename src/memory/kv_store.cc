#include "memory/kv_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace heddle::memory {

KvStore::KvStore(PagePool& pool, std::int64_t pages) : pool_(pool), total_(pages) {
  auto taken = pool_.take(kKvStoreOwner, pages);
  HEDDLE_CHECK(taken.has_value());
  free_ = std::move(*taken);
}

KvStore::~KvStore() {
  for (const auto& [id, page] : pages_) {
    free_.push_back(id);
  }
  pool_.put(kKvStoreOwner, free_);
}

std::optional<PageId> KvStore::page_of(const KvOrigin& origin, const BlockKey& key) const {
  const auto found = found_.find({origin, key});
  return found == found_.end() ? std::nullopt : std::optional(found->second);
}

/// As if it had come in just now, worth so much more than before.
void KvStore::refresh(PageId id, Page& page, double more) {
  order_.erase(order_of(id, page));
  page.value += more;
  page.priority = least_ + page.value;
  page.tick = ++ticks_;
  order_.insert(order_of(id, page));
}

void KvStore::touch(const KvOrigin& origin, const BlockKey& key) {
  if (const auto page = page_of(origin, key)) {
    refresh(*page, pages_.at(*page), 0);
  }
}

/// A page without blocks: a free one, or that of the least priority.
std::optional<PageId> KvStore::find_room() {
  if (free_.empty() && !order_.empty()) {
    least_ = std::get<double>(*order_.begin());
    ++counts_.displaced_pages;
    forget(std::get<PageId>(*order_.begin()));
  }
  if (free_.empty()) {
    return std::nullopt;
  }
  const PageId page = free_.back();
  free_.pop_back();
  return page;
}

bool KvStore::keep_page(
    OwnerId owner, PageId page, const KvOrigin& origin, const SlotKeys& keys, double value) {
  Page added{.origin = origin, .keys = keys};
  bool any = false;
  for (std::optional<BlockKey>& key : added.keys) {
    if (key && contains(origin, *key)) {
      touch(origin, *key);
      key.reset();
    }
    any = any || key.has_value();
  }
  const std::optional<PageId> room = any ? find_room() : std::nullopt;
  if (!room) {
    return false;
  }
  for (const std::optional<BlockKey>& key : added.keys) {
    if (key) {
      found_.emplace(Key{origin, *key}, page);
    }
  }
  pool_.pass(owner, kKvStoreOwner, page);
  pool_.put(kKvStoreOwner, {&*room, 1});
  refresh(page, pages_.emplace(page, std::move(added)).first->second, value);
  ++counts_.kept_pages;
  return true;
}

void KvStore::keep_block(const KvOrigin& origin,
                         const BlockKey& key,
                         std::span<const std::byte> block,
                         std::size_t slots,
                         double value) {
  if (contains(origin, key)) {
    touch(origin, key);
    return;
  }
  if (!open_.contains(origin)) {
    const std::optional<PageId> room = find_room();
    if (!room) {
      return;
    }
    pages_.emplace(*room, Page{.origin = origin, .keys = SlotKeys(slots)});
    open_.emplace(origin, *room);
  }
  const PageId id = open_.at(origin);
  Page& page = pages_.at(id);
  const auto slot = static_cast<std::size_t>(
      std::ranges::find(page.keys, std::optional<BlockKey>{}) - page.keys.begin());
  HEDDLE_CHECK(slot < slots && page.keys.size() == slots);
  std::memcpy(pool_.device().page_address(id) + slot * block.size(), block.data(), block.size());
  page.keys[slot] = key;
  found_.emplace(Key{origin, key}, id);
  refresh(id, page, value);
  if (slot + 1 == slots) {
    open_.erase(origin);
  }
  ++counts_.kept_blocks;
}

/// The page leaves the books.
SlotKeys KvStore::remove(PageId id) {
  const auto found = pages_.find(id);
  HEDDLE_CHECK(found != pages_.end());
  Page page = std::move(found->second);
  order_.erase(order_of(id, page));
  pages_.erase(found);
  for (const std::optional<BlockKey>& key : page.keys) {
    if (key) {
      found_.erase({page.origin, *key});
    }
  }
  const auto open = open_.find(page.origin);
  if (open != open_.end() && open->second == id) {
    open_.erase(open);
  }
  return std::move(page.keys);
}

void KvStore::forget(PageId page) {
  remove(page);
  free_.push_back(page);
}

KvStore::Returning KvStore::take_out(const KvOrigin& origin, const BlockKey& key) {
  const std::optional<PageId> page = page_of(origin, key);
  HEDDLE_CHECK(page.has_value());
  return {.page = *page, .keys = remove(*page)};
}

void KvStore::give_back(const Returning& returning, OwnerId owner) {
  const auto taken = pool_.take(kKvStoreOwner, 1);
  HEDDLE_CHECK(taken.has_value());
  free_.push_back(taken->front());
  pool_.pass(kKvStoreOwner, owner, returning.page);
  ++counts_.returned_pages;
}

void KvStore::forget(ModelId model) {
  std::vector<PageId> gone;
  for (const auto& [id, page] : pages_) {
    if (page.origin.model == model) {
      gone.push_back(id);
    }
  }
  for (const PageId page : gone) {
    forget(page);
  }
}

void KvStore::check_invariants() const {
  HEDDLE_CHECK(std::ssize(free_) + std::ssize(pages_) == total_);
  HEDDLE_CHECK(pool_.owned_count(kKvStoreOwner) == total_);
  HEDDLE_CHECK(order_.size() == pages_.size());
  std::size_t keys = 0;
  for (const auto& [id, page] : pages_) {
    HEDDLE_CHECK(pool_.owner_of(id) == kKvStoreOwner);
    HEDDLE_CHECK(order_.contains(order_of(id, page)));
    for (const std::optional<BlockKey>& key : page.keys) {
      HEDDLE_CHECK(!key || found_.at({page.origin, *key}) == id);
      keys += key ? 1U : 0U;
    }
  }
  HEDDLE_CHECK(keys == found_.size());
  for (const auto& [origin, id] : open_) {
    HEDDLE_CHECK(pages_.at(id).origin == origin && !pages_.at(id).keys.back());
  }
}

}  // namespace heddle::memory
