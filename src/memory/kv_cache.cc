#include "memory/kv_cache.h"

#include <bit>

#include "base/check.h"

namespace heddle::memory {
namespace {

constexpr std::uint32_t kWordBits = 64;

/// A mask of `count` slots, all free.
std::vector<std::uint64_t> all_free(std::uint32_t count) {
  std::vector<std::uint64_t> mask((count + kWordBits - 1) / kWordBits, ~std::uint64_t{0});
  if (const std::uint32_t rest = count % kWordBits; rest > 0) {
    mask.back() = (std::uint64_t{1} << rest) - 1;
  }
  return mask;
}

/// Takes the lowest free slot out of a mask that has one.
std::uint32_t take_lowest(std::vector<std::uint64_t>& mask) {
  std::uint32_t word = 0;
  while (mask[word] == 0) {
    ++word;
  }
  const auto bit = static_cast<std::uint32_t>(std::countr_zero(mask[word]));
  mask[word] &= mask[word] - 1;
  return word * kWordBits + bit;
}

}  // namespace

KvCache::KvCache(PagePool& pool, OwnerId owner, const KvGeometry& geometry)
    : pool_(pool), owner_(owner), geometry_(geometry) {
  HEDDLE_CHECK(geometry_.blocks_per_page > 0 && geometry_.block_tokens > 0);
  HEDDLE_CHECK(geometry_.blocks_per_page * geometry_.block_bytes ==
               pool.device().properties().page_bytes);
}

KvCache::~KvCache() {
  for (const auto& [id, page] : pages_) {
    pool_.put(owner_, {&id, 1});
  }
}

Result<KvBlockRef> KvCache::allocate() {
  if (roomy_.empty()) {
    const auto taken = pool_.take(owner_, 1);
    if (!taken) {
      return taken.error();
    }
    const PageId id = taken->front();
    pages_.emplace(id,
                   Page{.free_slots = geometry_.blocks_per_page,
                        .free_mask = all_free(geometry_.blocks_per_page)});
    roomy_.emplace(geometry_.blocks_per_page, id);
  }
  const PageId id = roomy_.begin()->second;
  Page& page = pages_.at(id);
  const std::uint32_t slot = take_lowest(page.free_mask);
  set_free_slots(id, page, page.free_slots - 1);
  ++blocks_held_;
  return KvBlockRef{.page = id, .slot = slot};
}

void KvCache::free(KvBlockRef block) {
  const auto found = pages_.find(block.page);
  HEDDLE_CHECK(found != pages_.end());
  HEDDLE_CHECK(block.slot < geometry_.blocks_per_page);
  Page& page = found->second;
  std::uint64_t& word = page.free_mask[block.slot / kWordBits];
  const std::uint64_t bit = std::uint64_t{1} << (block.slot % kWordBits);
  HEDDLE_CHECK((word & bit) == 0);
  word |= bit;
  set_free_slots(block.page, page, page.free_slots + 1);
  --blocks_held_;
  if (page.free_slots == geometry_.blocks_per_page) {
    roomy_.erase({page.free_slots, block.page});
    pages_.erase(found);
    pool_.put(owner_, {&block.page, 1});
  }
}

/// Keeps the order of fullness as a page's free slots change.
void KvCache::set_free_slots(PageId id, Page& page, std::uint32_t free_slots) {
  if (page.free_slots > 0) {
    roomy_.erase({page.free_slots, id});
  }
  page.free_slots = free_slots;
  if (free_slots > 0) {
    roomy_.emplace(free_slots, id);
  }
}

void KvCache::check_invariants() const {
  std::int64_t blocks = 0;
  std::size_t roomy = 0;
  for (const auto& [id, page] : pages_) {
    HEDDLE_CHECK(pool_.owner_of(id) == owner_);
    std::uint32_t free_slots = 0;
    for (const std::uint64_t word : page.free_mask) {
      free_slots += static_cast<std::uint32_t>(std::popcount(word));
    }
    HEDDLE_CHECK(free_slots == page.free_slots);
    HEDDLE_CHECK(free_slots < geometry_.blocks_per_page);
    HEDDLE_CHECK(free_slots == 0 || roomy_.contains({free_slots, id}));
    roomy += free_slots > 0 ? 1U : 0U;
    blocks += geometry_.blocks_per_page - free_slots;
  }
  HEDDLE_CHECK(roomy == roomy_.size());
  HEDDLE_CHECK(blocks == blocks_held_);
  HEDDLE_CHECK(pool_.owned_count(owner_) >= pages_held());
}

}  // namespace heddle::memory
