#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <vector>

#include "device/device.h"
#include "memory/window.h"

namespace heddle::memory {

/// Windows of models that are closed, which stay mapped: while the pages of an image stay what they
/// are, the model is open again at once. Nobody reads through them meanwhile, and they are read
/// only. What they show of a page goes when the page is put to another use: before that (drop), or
/// bit by bit, when there is nothing better to do (let_go, drop_some).
///
/// What a window shows beyond what is mapped of it is this object's to unmap, from keep() on until
/// map() has put it to use again. Any thread; a window's own calls are made by one at a time.
class KeptWindows {
 public:
  /// Beyond so many mappings in all (Properties::most_mappings), windows that were kept longest are
  /// let go. `device` outlives this.
  explicit KeptWindows(const device::Device& device);

  /// Closes a window and keeps what it shows. It lives as long as this object.
  void keep(Window& window);
  /// Its model is about to be open again: it is not let go any more.
  void hold(Window& window);
  /// Window::map() for a window that may be kept.
  Result<void> map(Window& window, std::span<const device::PageId> pages, device::Access access);

  /// Unmaps these pages wherever a kept window shows them, other than `but`, before it returns.
  void drop(std::span<const device::PageId> pages, const Window* but = nullptr);
  /// Whether a kept window shows any of these pages.
  [[nodiscard]] bool shows(std::span<const device::PageId> pages) const;
  /// Unmaps all that is kept, before it returns.
  void drop_all();

  /// Windows that show any of these pages are to go; so is this window, if it is kept.
  void let_go(std::span<const device::PageId> pages);
  void let_go(const Window& window);
  /// Whether there is something for drop_some() to do.
  [[nodiscard]] bool has_let_go() const;
  /// Unmaps up to `pages` pages of a window that was let go.
  void drop_some(std::size_t pages);

  /// Bytes that kept windows show, and mappings that this takes.
  [[nodiscard]] std::uint64_t bytes() const;
  [[nodiscard]] std::uint64_t mappings() const;
  /// CHECK-fails if counts and windows disagree.
  void check_invariants() const;

 private:
  struct Kept {
    Window* window = nullptr;
    std::uint64_t mappings = 0;
    bool goes = false;
  };
  using Entry = std::list<Kept>::iterator;

  // With mutex_ held.
  [[nodiscard]] Entry find(const Window& window);
  void add(Window& window);
  void count(const Window& window, bool shown);
  void unmap(Entry entry, std::size_t first, std::size_t pages);
  Entry remove(Entry entry);
  void trim();

  const std::uint64_t page_bytes_;
  const std::uint64_t most_mappings_;
  mutable std::mutex mutex_{};
  std::list<Kept> kept_{};                ///< Those kept longest first.
  std::vector<std::uint32_t> windows_{};  ///< By page: kept windows that show it.
  std::uint64_t shown_ = 0;               ///< Pages, by window.
  std::uint64_t mappings_ = 0;
};

}  // namespace heddle::memory
