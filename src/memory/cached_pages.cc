#include "memory/cached_pages.h"

#include "memory/kv_cache.h"

namespace heddle::memory {

bool CachedPages::drop_oldest(ledger::DropReason reason) {
  if (by_age_.empty()) {
    return false;
  }
  const Place oldest = by_age_.begin()->second;
  oldest.cache->drop(oldest.page);
  ++dropped_[static_cast<std::size_t>(reason)];
  return true;
}

}  // namespace heddle::memory
