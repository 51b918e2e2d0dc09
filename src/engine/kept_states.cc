#include "engine/kept_states.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace heddle::engine {

KeptStates::KeptStates(memory::PagePool& pool,
                       memory::CachedPages& cached,
                       std::deque<memory::KvCache>& caches,
                       std::size_t first)
    : pool_(&pool), cached_(&cached) {
  for (std::size_t g = first; g < caches.size(); ++g) {
    caches_.push_back(&caches[g]);
  }
}

bool KeptStates::contains(const memory::BlockKey& key, bool stored) const {
  return std::ranges::all_of(caches_, [&](const memory::KvCache* cache) {
    return cache->contains(key) || (stored && cache->stored(key));
  });
}

void KeptStates::hold(SequenceStates& states, std::int64_t length, const memory::BlockKey& key) {
  HEDDLE_CHECK(!states.resumed);
  StateCopy copy{.length = length, .key = key};
  for (memory::KvCache* const cache : caches_) {
    copy.blocks.push_back(cache->use(key).value());
  }
  states.resumed = std::move(copy);
  know(states, key);
}

void KeptStates::resume(SequenceStates& states, std::span<const memory::KvBlockRef> own) {
  if (!states.resumed) {
    return;
  }
  for (std::size_t i = 0; i < caches_.size(); ++i) {
    std::byte* const target = caches_[i]->address(own[i]);
    const std::byte* const source = caches_[i]->address(states.resumed->blocks[i]);
    const std::size_t bytes = caches_[i]->geometry().block_bytes;
    if (stream_ != nullptr) {
      stream_->copy(target, source, bytes);
    } else {
      std::memcpy(target, source, bytes);
    }
  }
  free(std::exchange(states.resumed, std::nullopt)->blocks);
}

/// Whoever goes on from a copy has all its blocks, so that all of them have equally many users.
std::vector<memory::KvBlockRef> KeptStates::take_over(SequenceStates& states) {
  if (!states.resumed) {
    return {};
  }
  for (std::size_t i = 0; i < caches_.size(); ++i) {
    const bool alone = caches_[i]->unkeep(states.resumed->blocks[i]);
    HEDDLE_CHECK(alone || i == 0);
    if (!alone) {
      return {};
    }
  }
  return std::exchange(states.resumed, std::nullopt)->blocks;
}

void KeptStates::prepare(SequenceStates& states, const StateCopy& wanted, std::int64_t kv_pages) {
  if (contains(wanted.key, false)) {
    know(states, wanted.key);
    return;
  }
  if (states.last) {
    for (memory::KvCache* const cache : caches_) {
      cache->give_up(*states.last, std::nullopt);
    }
    std::erase(states.known, *states.last);
    states.last.reset();
  }
  StateCopy copy = wanted;
  copy.blocks = make_room(kv_pages) ? allocate() : std::vector<memory::KvBlockRef>();
  if (!copy.blocks.empty()) {
    states.copies.push_back(std::move(copy));
    ++prepared_;
  }
}

/// Whether copies may have one more, for which the oldest give way. A block counts as a page: what
/// is free of a cached page nobody else gets.
bool KeptStates::make_room(std::int64_t kv_pages) {
  const std::int64_t most = (kv_pages + cached_->count() + pool_->free_count()) / 2;
  const std::int64_t wanted = (prepared_ + 1) * std::ssize(caches_);
  while (wanted <= most && wanted + pages_cached() > most) {
    const memory::BlockKey oldest = oldest_copy();
    for (memory::KvCache* const cache : caches_) {
      cache->give_up(oldest, ledger::DropReason::kBound);
    }
  }
  return wanted <= most;
}

std::int64_t KeptStates::pages_cached() const {
  std::int64_t pages = 0;
  for (const memory::KvCache* const cache : caches_) {
    pages += cache->pages_cached();
  }
  return pages;
}

/// Of those that are idle, of which there is one.
memory::BlockKey KeptStates::oldest_copy() const {
  std::optional<memory::KvCache::Idle> oldest;
  for (const memory::KvCache* const cache : caches_) {
    const auto of_cache = cache->oldest_idle();
    if (of_cache && (!oldest || of_cache->since < oldest->since)) {
      oldest = of_cache;
    }
  }
  return oldest.value().key;
}

/// One block of each cache, or none.
std::vector<memory::KvBlockRef> KeptStates::allocate() {
  std::vector<memory::KvBlockRef> blocks;
  for (memory::KvCache* const cache : caches_) {
    const auto block = cache->allocate();
    if (!block) {
      free(blocks);
      return {};
    }
    blocks.push_back(*block);
  }
  return blocks;
}

void KeptStates::keep(SequenceStates& states) {
  for (const StateCopy& copy : states.copies) {
    bool own = true;
    for (std::size_t i = 0; i < caches_.size(); ++i) {
      // Another sequence may have made the same meanwhile.
      own = caches_[i]->keep(copy.blocks[i], copy.key) && own;
    }
    know(states, copy.key);
    if (own && !copy.lasting) {
      states.last = copy.key;
    }
  }
  drop(states);
}

void KeptStates::drop(SequenceStates& states) {
  for (const StateCopy& copy : states.copies) {
    free(copy.blocks);
    --prepared_;
  }
  states.copies.clear();
}

void KeptStates::leave(SequenceStates& states) {
  drop(states);
  if (states.resumed) {
    free(states.resumed->blocks);
  }
  for (const memory::BlockKey& key : states.known) {
    for (memory::KvCache* const cache : caches_) {
      if (const auto block = cache->use(key)) {
        cache->free(*block);
      }
    }
  }
  states = {};
}

/// The first blocks of a list as long as there are groups, or shorter.
void KeptStates::free(const std::vector<memory::KvBlockRef>& blocks) {
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    caches_[i]->free(blocks[i]);
  }
}

void KeptStates::know(SequenceStates& states, const memory::BlockKey& key) {
  std::erase(states.known, key);
  states.known.push_back(key);
}

}  // namespace heddle::engine
