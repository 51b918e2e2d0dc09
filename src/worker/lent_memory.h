#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>

#include "base/descriptor.h"
#include "base/ids.h"
#include "base/result.h"
#include "device/device.h"

namespace heddle::worker {

/// The memory of pages that a GPU lends to guests, as one of the two workers maps it: each page at
/// its number, from one address on. A page's memory is made by the lender's worker, mapped by both
/// by its descriptor, and lasts as long as one of them has it, or a descriptor of it. Used by one
/// thread.
class LentMemory {
 public:
  /// Addresses for pages below `page_count`, none of which is mapped. `device` is this worker's,
  /// and outlives it. kResourceExhausted as Device::reserve.
  static Result<std::unique_ptr<LentMemory>> create(device::Device& device,
                                                    std::uint64_t page_count);
  /// No work may touch it any more.
  ~LentMemory();
  LentMemory(const LentMemory&) = delete;
  LentMemory& operator=(const LentMemory&) = delete;

  /// Gives a page that is not mapped memory of this device, for another to map by the descriptor.
  /// Errors as Device::map_new_shared; kInvalidArgument for a page that is mapped or not below
  /// `page_count`, as below.
  Result<Descriptor> make(PageId page);
  /// Maps what a page has there. Errors as Device::map_shared.
  Result<void> map(PageId page, const Descriptor& memory);
  /// Unmaps a page that is mapped; no work may touch it any more.
  void drop(PageId page);

  /// Where page 0 is.
  [[nodiscard]] std::byte* base() const { return range_.base; }
  [[nodiscard]] std::uint64_t page_count() const;
  /// The pages that are mapped.
  [[nodiscard]] const std::set<PageId>& pages() const { return pages_; }

 private:
  LentMemory(device::Device& device, device::AddressRange range) : device_(device), range_(range) {}
  [[nodiscard]] Result<std::size_t> offset_of(PageId page) const;

  device::Device& device_;
  device::AddressRange range_;
  std::set<PageId> pages_{};
};

}  // namespace heddle::worker
