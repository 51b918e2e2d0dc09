#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/device.h"
#include "ledger/ledger.h"

namespace heddle::memory {

using device::PageId;
/// Who owns a page: the lease that it is counted under. 0 (no lease) owns the free pages.
using OwnerId = ledger::LeaseId;

/// The pages that a device may use now, each with exactly one owner. The ledger counts, the pool
/// knows which: callers change both together, the ledger first.
///
/// Pages come in from the host and go back to it by number (adopt, surrender); their memory stays
/// mapped at Device::page_address throughout. Whoever gives a page up has made sure that no
/// enqueued work touches it any more. To give up a page that one does not own is a bug and
/// CHECK-fails. Deterministic: equal calls choose equal pages. Used by one thread.
class PagePool {
 public:
  /// Starts with `pages`, distinct and all free. `device` outlives the pool.
  PagePool(device::Device& device, std::span<const PageId> pages);

  /// Called with pages that take() hands out and their owner, before it returns: to see to what is
  /// left of their former use.
  using OnTaken = std::function<void(OwnerId, std::span<const PageId>)>;
  void on_taken(OnTaken on_taken) { on_taken_ = std::move(on_taken); }

  /// `count` free pages for `owner`, ascending: the first run of adjacent pages that is long enough
  /// (so that mapping them is one call), else the lowest free ones. All or kResourceExhausted.
  Result<std::vector<PageId>> take(OwnerId owner, std::int64_t count);
  /// Pages of `owner` become free.
  void put(OwnerId owner, std::span<const PageId> pages);

  /// A page of `from` is `to`'s from then on. It holds what it held.
  void pass(OwnerId from, OwnerId to, PageId page);

  /// Pages of another device, numbered below `page_count`, are to come in: more than this one has.
  void number_to(std::uint64_t page_count);
  /// Pages that the pool did not have come in, owned by `owner` (an image's, by the lease of its
  /// weights) or, without one, free.
  void adopt(std::span<const PageId> pages, OwnerId owner = OwnerId{});
  /// `count` free pages leave the pool, the highest first. All or kResourceExhausted.
  Result<std::vector<PageId>> surrender(std::int64_t count);
  /// Pages of `owner` leave the pool.
  void surrender(OwnerId owner, std::span<const PageId> pages);

  [[nodiscard]] bool contains(PageId page) const;
  /// The owner of a page that the pool contains; no lease (0) when it is free.
  [[nodiscard]] OwnerId owner_of(PageId page) const;
  /// Pages that the pool contains, free ones included.
  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::int64_t free_count() const { return free_count_; }
  /// Pages that `owner` owns.
  [[nodiscard]] std::int64_t owned_count(OwnerId owner) const;
  [[nodiscard]] device::Device& device() const { return device_; }

  /// CHECK-fails unless every page has one owner and all counts agree.
  void check_invariants() const;

 private:
  void add_free(std::span<const PageId> pages);
  void remove_free(std::uint64_t first, std::uint64_t length);
  void set_owner(std::span<const PageId> pages, OwnerId owner);
  void drop_owner(std::span<const PageId> pages, OwnerId owner, OwnerId next);

  device::Device& device_;
  OnTaken on_taken_{};
  std::vector<OwnerId> owners_{};  ///< By page number, over all pages of the device.
  std::map<std::uint64_t, std::uint64_t> free_runs_{};  ///< First page to count; never adjacent.
  std::map<OwnerId, std::int64_t> owned_{};
  std::int64_t size_ = 0;
  std::int64_t free_count_ = 0;
};

}  // namespace heddle::memory
