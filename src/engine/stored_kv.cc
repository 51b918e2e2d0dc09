#include "engine/stored_kv.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/check.h"

namespace heddle::engine {

/// Calls `each(group, key)` for the blocks that tokens behind the first `length` attend to, and
/// then those of a copy of the state there, until it says false.
template <class Each>
void StoredKv::for_each_needed(const SequenceKv& sequence,
                               std::int64_t length,
                               const Each& each) const {
  const std::size_t groups = kv_->plan_.kv_groups();
  for (std::size_t g = 0; g < groups; ++g) {
    const auto blocks =
        static_cast<std::size_t>(length / kv_->plan_.groups[g].geometry.block_tokens);
    for (std::size_t i = std::min(kv_->first_needed(g, length), blocks); i < blocks; ++i) {
      if (!each(g, sequence.groups_[g].keys[i])) {
        return;
      }
    }
  }
  for (std::size_t g = groups; g < kv_->caches_.size() && length > 0; ++g) {
    if (!each(g, ModelKv::key_of(sequence, kv_->plan_, length))) {
      return;
    }
  }
}

StoredKv::Found StoredKv::bring_back(SequenceKv& sequence,
                                     const PrefixKeys& keys,
                                     std::span<const TokenId> tokens,
                                     const std::function<bool(const Found&)>& worth) {
  for (const SequenceKv::Group& group : sequence.groups_) {
    HEDDLE_CHECK(group.blocks.empty());
  }
  kv_->extend_keys(sequence, keys, tokens);
  const std::int64_t here = kv_->cached_length(sequence, std::ssize(tokens));
  const std::int64_t length =
      kv_->cached_length(sequence, std::ssize(tokens), ModelKv::Among::kCacheAndStore);
  if (length <= here) {
    return {};
  }
  std::set<memory::PageId> pages;
  for_each_needed(sequence, length, [&](std::size_t g, const memory::BlockKey& key) {
    const auto stored = kv_->caches_[g].contains(key) ? std::nullopt : kv_->caches_[g].stored(key);
    if (stored) {
      pages.insert(*stored);
    }
    return true;
  });
  if (!worth({.tokens = length - here, .pages = std::ssize(pages)})) {
    return {};
  }
  fetch(sequence, length);
  // Where pages lacked, what came may have cost a copy of the state that was here.
  const std::int64_t more = kv_->cached_length(sequence, std::ssize(tokens)) - here;
  return {.tokens = std::max<std::int64_t>(more, 0), .pages = std::ssize(pages)};
}

/// All blocks that a prefix of `length` tokens needs come to be in the cache, or as many as there
/// are pages for. What is there is held meanwhile, or it would go for the rest.
void StoredKv::fetch(const SequenceKv& sequence, std::int64_t length) {
  std::vector<std::vector<memory::KvBlockRef>> held(kv_->caches_.size());
  const auto hold = [&](std::size_t g, const memory::BlockKey& key) {
    if (const auto block = kv_->caches_[g].use(key)) {
      held[g].push_back(*block);
    } else {
      kv_->caches_[g].touch_stored(key);
    }
    return true;
  };
  for_each_needed(sequence, length, hold);
  for_each_needed(sequence, length, [&](std::size_t g, const memory::BlockKey& key) {
    if (kv_->caches_[g].contains(key)) {
      return true;
    }
    return kv_->caches_[g].stored(key) && kv_->caches_[g].bring_back(key) && hold(g, key);
  });
  for (std::size_t g = 0; g < held.size(); ++g) {
    for (const memory::KvBlockRef block : held[g]) {
      kv_->caches_[g].free(block);
    }
  }
}

/// A page of copies of states is worth as much as one of KV: both spare computing the same tokens.
void StoredKv::set_token_value(double value) {
  const KvPlan& plan = kv_->plan_;
  const double of_byte = value / static_cast<double>(plan.token_bytes());
  for (std::size_t g = 0; g < kv_->caches_.size(); ++g) {
    const memory::KvGeometry& geometry = plan.groups[g].geometry;
    const bool states = g >= plan.kv_groups();
    kv_->caches_[g].set_block_value(states ? of_byte * static_cast<double>(geometry.block_bytes)
                                           : value * static_cast<double>(geometry.block_tokens) /
                                                 static_cast<double>(plan.kv_groups()));
  }
}

void StoredKv::keep_nothing() {
  for (memory::KvCache& cache : kv_->caches_) {
    cache.keep_nothing();
  }
}

}  // namespace heddle::engine
