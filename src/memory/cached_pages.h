#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "device/device.h"
#include "ledger/drop_reason.h"

namespace heddle::memory {

class CachedImage;
class KvCache;

/// The pages of a device that hold cached KV or adapters and nothing that runs, of all models,
/// least recently used first. They are free for whoever needs one more than the cache does:
/// drop_oldest() gives one back to the pool. Outlives what is made with it. Used by one thread.
class CachedPages {
 public:
  /// Somebody who has cached pages.
  class Owner {
   public:
    virtual ~Owner() = default;

   private:
    friend class CachedPages;
    /// Forgets what the page held, and gives it back to the pool; with it, perhaps, others whose
    /// contents are of no use without it.
    virtual void drop(device::PageId page) = 0;
  };

  CachedPages() = default;
  CachedPages(const CachedPages&) = delete;
  CachedPages& operator=(const CachedPages&) = delete;

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(by_age_.size()); }
  /// Gives the page that was used longest ago back to the pool, and forgets what it held; with it
  /// the other pages of an image. False if there is none. O(blocks of a page * log pages).
  bool drop_oldest(ledger::DropReason reason);
  /// Pages given up so far.
  [[nodiscard]] const ledger::DropCounts& dropped() const { return dropped_; }

 private:
  friend class CachedImage;
  friend class KvCache;
  struct Place {
    Owner* cache = nullptr;
    device::PageId page{};
  };

  /// A moment, later than all before: ages without a clock, so that equal calls drop equal pages.
  std::uint64_t tick() { return ++ticks_; }

  std::uint64_t ticks_ = 0;
  std::map<std::uint64_t, Place> by_age_{};  ///< By when the page was used last.
  ledger::DropCounts dropped_{};
};

}  // namespace heddle::memory
