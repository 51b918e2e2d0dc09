#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"
#include "memory/cached_pages.h"
#include "memory/page_pool.h"
#include "memory/window.h"

namespace heddle::memory {

/// Weights that are small and quick to have again, such as those of an adapter: one range of
/// addresses over pages that one lease owns. While it has users its pages are theirs. Without any
/// they are cached pages, and go together when one of them is dropped. Used by one thread.
class CachedImage : public CachedPages::Owner {
 public:
  /// Called before pages are given up that enqueued work may still read: returns when it is over.
  using Settle = std::function<void()>;

  /// Takes the pages that `bytes` > 0 need, cached ones in the place of free ones, and maps them
  /// for writing. It has one user. `pool` and `cached` outlive it. `settle` may be empty where
  /// nothing is enqueued beyond a step. kResourceExhausted where there
  /// are too few pages, and then nothing is taken, but cached pages may have been dropped; else as
  /// Window::create and Window::map.
  static Result<std::unique_ptr<CachedImage>> create(
      PagePool& pool, OwnerId owner, CachedPages& cached, std::size_t bytes, Settle settle = {});
  /// Gives the pages back; no enqueued work touches them any more.
  ~CachedImage() override;
  CachedImage(const CachedImage&) = delete;
  CachedImage& operator=(const CachedImage&) = delete;

  /// One user more; it is there.
  void use();
  /// One user fewer. No enqueued work of it is left that touches the image, unless there is a
  /// Settle.
  void leave();

  /// Whether it has not been dropped.
  [[nodiscard]] bool there() const { return !pages_.empty(); }
  [[nodiscard]] std::int64_t users() const { return users_; }
  [[nodiscard]] std::int64_t pages() const { return static_cast<std::int64_t>(pages_.size()); }
  [[nodiscard]] std::byte* base() const { return window_.base(); }

 private:
  CachedImage(PagePool& pool,
              OwnerId owner,
              CachedPages& cached,
              Window window,
              std::vector<PageId> pages,
              Settle settle)
      : pool_(pool),
        owner_(owner),
        cached_(cached),
        window_(std::move(window)),
        pages_(std::move(pages)),
        settle_(std::move(settle)) {}
  void drop(PageId page) override;
  void give_back();
  void leave_cache();

  PagePool& pool_;
  OwnerId owner_;
  CachedPages& cached_;
  Window window_;
  std::vector<PageId> pages_;  ///< Empty once dropped.
  Settle settle_;
  std::vector<std::uint64_t> ages_{};  ///< Where cached: the places of its pages.
  std::int64_t users_ = 1;
};

}  // namespace heddle::memory
