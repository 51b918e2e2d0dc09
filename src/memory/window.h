#pragma once

#include <cstddef>
#include <span>

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
  /// They fit. An error leaves the window as it was.
  Result<void> map(std::span<const device::PageId> pages, device::Access access);
  /// Unmaps all but the first `bytes`, whole pages of those mapped. No enqueued work touches what
  /// goes.
  void shrink(std::size_t bytes);
  /// Unmaps everything and keeps the addresses. No enqueued work touches them any more.
  void unmap_all();

  [[nodiscard]] std::byte* base() const { return range_.base; }
  [[nodiscard]] std::size_t bytes() const { return range_.bytes; }
  /// Bytes mapped, from the base on.
  [[nodiscard]] std::size_t mapped_bytes() const { return mapped_bytes_; }

 private:
  Window(device::Device& device, device::AddressRange range) : device_(&device), range_(range) {}
  void reset();

  device::Device* device_;
  device::AddressRange range_{};
  std::size_t mapped_bytes_ = 0;
};

}  // namespace heddle::memory
