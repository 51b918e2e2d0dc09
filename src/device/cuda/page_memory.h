#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "device/cuda/cuda_context.h"
#include "device/device.h"

namespace heddle::device {

/// The physical pages of a GPU that are ours, created once, each with a handle of its own so that
/// each can be mapped and unmapped alone, and all mapped once, side by side, to read and write.
/// Some may be given back to the driver for a while. Mapping is thread safe. All or nothing: what
/// creating or mapping began, it undoes when it fails.
class PageMemory {
 public:
  /// Addresses for `page_count` pages, and memory for those of them that are in `present`.
  /// `page_bytes` a multiple of the device's granularity. kResourceExhausted says how many pages
  /// could be had. `context` outlives it.
  static Result<std::unique_ptr<PageMemory>> create(CudaContext& context,
                                                    std::size_t page_bytes,
                                                    std::uint64_t page_count,
                                                    std::span<const PageId> present);
  /// Nothing may be mapped elsewhere any more, and no work may touch the pages.
  ~PageMemory();
  PageMemory(const PageMemory&) = delete;
  PageMemory& operator=(const PageMemory&) = delete;

  [[nodiscard]] std::size_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] std::uint64_t page_count() const { return handles_.size(); }
  /// Where page `page` is in the one mapping.
  [[nodiscard]] CUdeviceptr address(std::uint64_t page) const { return base_ + page * page_bytes_; }

  /// The memory of pages that are present goes back to the driver; none is mapped elsewhere.
  void give_back(std::span<const PageId> pages);
  /// Memory for pages that are not present. All, or kResourceExhausted.
  Result<void> take(std::span<const PageId> pages);

  /// Maps `pages`, in order, at `at`, which is reserved and has nothing mapped: a handle at a time,
  /// then the access of all at once, which is what takes the time. After an error nothing is mapped
  /// there but `left`, as unmap() has it.
  Result<void> map(CUdeviceptr at,
                   std::span<const PageId> pages,
                   Access access,
                   std::vector<std::uint64_t>& left);
  /// Takes `pages` pages at `at` out again, all of which are mapped: at once, or one by one where
  /// the driver refuses that. Returns those, counted from `at`, that it does not give up even so,
  /// and logs why; they stay mapped.
  std::vector<std::uint64_t> unmap(CUdeviceptr at, std::uint64_t pages);

  /// False on devices that know no read-only memory: there Access::kRead is as kReadWrite.
  [[nodiscard]] bool can_protect() const { return can_protect_.load(); }

 private:
  PageMemory(CudaContext& context, std::size_t page_bytes)
      : context_(context), page_bytes_(page_bytes) {}
  Result<void> reserve(std::uint64_t page_count);
  Result<void> create_page(PageId page);
  void drop(PageId page);
  Result<void> set_access(CUdeviceptr at, std::uint64_t pages, Access access);

  CudaContext& context_;
  std::size_t page_bytes_;
  /// By page; none where it is not present. All that are present are mapped at `base_`.
  std::vector<std::optional<CUmemGenericAllocationHandle>> handles_{};
  CUdeviceptr base_ = 0;  ///< 0 until addresses are reserved.
  std::atomic<bool> can_protect_ = true;
};

}  // namespace heddle::device
