#include "memory/cached_pages.h"

namespace heddle::memory {

bool CachedPages::drop_oldest(ledger::DropReason reason) {
  if (by_age_.empty()) {
    return false;
  }
  const std::int64_t before = count();
  const Place oldest = by_age_.begin()->second;
  oldest.cache->drop(oldest.page);
  dropped_[static_cast<std::size_t>(reason)] += static_cast<std::uint64_t>(before - count());
  return true;
}

}  // namespace heddle::memory
