#include "memory/cached_image.h"

#include <string>
#include <utility>

#include "base/check.h"

namespace heddle::memory {

Result<std::unique_ptr<CachedImage>> CachedImage::create(
    PagePool& pool, OwnerId owner, CachedPages& cached, std::size_t bytes, Settle settle) {
  HEDDLE_CHECK(bytes > 0);
  const std::size_t page_bytes = pool.device().properties().page_bytes;
  const auto count = static_cast<std::int64_t>((bytes + page_bytes - 1) / page_bytes);
  if (pool.free_count() + cached.count() < count) {
    return Error{Code::kResourceExhausted,
                 "take " + std::to_string(count) +
                     " pages for an adapter: " + std::to_string(pool.free_count()) +
                     " are free and " + std::to_string(cached.count()) + " cached"};
  }
  Result<Window> window = Window::create(pool.device(), bytes);
  if (!window) {
    return window.error();
  }
  while (pool.free_count() < count && cached.drop_oldest(ledger::DropReason::kKv)) {
  }
  Result<std::vector<PageId>> pages = pool.take(owner, count);
  if (!pages) {
    return pages.error();
  }
  if (const Result<void> mapped = window->map(*pages, device::Access::kReadWrite); !mapped) {
    pool.put(owner, *pages);
    return mapped.error();
  }
  return std::unique_ptr<CachedImage>(new CachedImage(
      pool, owner, cached, std::move(*window), std::move(*pages), std::move(settle)));
}

CachedImage::~CachedImage() {
  if (!ages_.empty()) {
    cached_.dropped_[static_cast<std::size_t>(ledger::DropReason::kClosed)] += ages_.size();
  }
  give_back();
}

void CachedImage::use() {
  HEDDLE_CHECK(there());
  leave_cache();
  ++users_;
}

void CachedImage::leave() {
  HEDDLE_CHECK(users_ > 0);
  if (--users_ > 0) {
    return;
  }
  for (const PageId page : pages_) {
    ages_.push_back(cached_.tick());
    cached_.by_age_.emplace(ages_.back(), CachedPages::Place{.cache = this, .page = page});
  }
}

void CachedImage::leave_cache() {
  for (const std::uint64_t age : ages_) {
    cached_.by_age_.erase(age);
  }
  ages_.clear();
}

void CachedImage::drop(PageId /*page*/) {
  HEDDLE_CHECK(users_ == 0);
  if (settle_) {
    settle_();
  }
  give_back();
}

void CachedImage::give_back() {
  leave_cache();
  window_.unmap_all();
  pool_.put(owner_, pages_);
  pages_.clear();
}

}  // namespace heddle::memory
