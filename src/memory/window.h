#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "device/device.h"

namespace heddle::memory {

/// A contiguous range of addresses for the weights of one model, over pages that lie anywhere.
/// Reserved once for the model's life on the device and mapped again at the same address after each
/// eviction, so that addresses (and graphs captured over them) stay good. Owns the addresses, not
/// the pages. Used by one thread at a time.
class Window {
 public:
  /// Reserves `bytes`, rounded up to whole pages; > 0. `device` outlives the window.
  static Result<Window> create(device::Device& device, std::size_t bytes);
  Window(Window&& other) noexcept;
  Window& operator=(Window&& other) noexcept;
  ~Window();

  /// Maps `pages` behind those mapped already, so that a window can fill while its image arrives.
  /// They fit. What is kept of them where it is to be stays as it is. An error leaves the window
  /// as it was.
  Result<void> map(std::span<const device::PageId> pages, device::Access access);
  /// Unmaps all but the first `bytes`, whole pages of those mapped. No enqueued work touches what
  /// goes.
  void shrink(std::size_t bytes);
  /// Unmaps everything and keeps the addresses. No enqueued work touches them any more.
  void unmap_all();

  /// Nothing counts as mapped any more, and nobody touches it; but all stays where it is, kept,
  /// until it is mapped again, or dropped.
  void close() { mapped_bytes_ = 0; }
  /// By page of the window, behind those mapped: which page is still shown there.
  [[nodiscard]] std::span<const std::optional<device::PageId>> kept() const {
    return std::span(shown_).subspan(mapped_pages());
  }
  /// Mappings that this takes: runs of pages that are adjacent in the device's memory.
  [[nodiscard]] std::uint64_t kept_mappings() const;
  /// Unmaps `count` of the kept pages from the one with index `first` on.
  void drop_kept(std::size_t first, std::size_t count) { drop(mapped_pages() + first, count); }

  /// Makes up to `bytes` more of what is mapped usable without a fault, from the base on. False
  /// when all of it is.
  bool populate_some(std::size_t bytes);

  [[nodiscard]] std::byte* base() const { return range_.base; }
  [[nodiscard]] std::size_t bytes() const { return range_.bytes; }
  /// Bytes mapped, from the base on.
  [[nodiscard]] std::size_t mapped_bytes() const { return mapped_bytes_; }

 private:
  Window(device::Device& device, device::AddressRange range);
  void reset();
  [[nodiscard]] std::size_t mapped_pages() const {
    return mapped_bytes_ / device_->properties().page_bytes;
  }
  void drop(std::size_t index, std::size_t count);
  Result<void> map_run(std::size_t first,
                       std::span<const device::PageId> pages,
                       device::Access access);

  device::Device* device_;
  device::AddressRange range_{};
  std::vector<std::optional<device::PageId>> shown_{};
  device::Access access_ = device::Access::kRead;  ///< Of all that is shown.
  std::size_t mapped_bytes_ = 0;
  std::size_t populated_bytes_ = 0;
};

}  // namespace heddle::memory
