#include "memory/kept_windows.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace heddle::memory {

using device::PageId;

KeptWindows::KeptWindows(const device::Device& device)
    : page_bytes_(device.properties().page_bytes),
      most_mappings_(device.properties().most_mappings),
      windows_(device.properties().page_count) {}

void KeptWindows::keep(Window& window) {
  const std::lock_guard lock(mutex_);
  if (const auto found = find(window); found != kept_.end()) {
    count(window, false);  // It was not mapped to its end.
    remove(found);
  }
  window.close();
  add(window);
  trim();
}

void KeptWindows::hold(Window& window) {
  const std::lock_guard lock(mutex_);
  if (const auto found = find(window); found != kept_.end()) {
    found->goes = false;
  }
}

Result<void> KeptWindows::map(Window& window,
                              std::span<const PageId> pages,
                              device::Access access) {
  std::unique_lock lock(mutex_);
  const auto found = find(window);
  if (found == kept_.end()) {
    lock.unlock();
    return window.map(pages, access);
  }
  count(window, false);
  remove(found);
  const Result<void> mapped = window.map(pages, access);
  add(window);
  return mapped;
}

void KeptWindows::drop(std::span<const PageId> pages, const Window* but) {
  const std::lock_guard lock(mutex_);
  std::set<PageId> wanted;
  for (const PageId page : pages) {
    if (windows_[page.value()] > 0) {
      wanted.insert(page);
    }
  }
  for (auto entry = kept_.begin(); !wanted.empty() && entry != kept_.end();) {
    const auto kept = entry->window->kept();
    const auto goes = [&](std::size_t i) { return kept[i] && wanted.contains(*kept[i]); };
    for (std::size_t first = 0; entry->window != but && first < kept.size();) {
      std::size_t end = first;
      while (end < kept.size() && goes(end)) {
        ++end;
      }
      unmap(entry, first, end - first);
      first = end + 1;
    }
    entry = entry->mappings == 0 ? remove(entry) : std::next(entry);
  }
}

bool KeptWindows::shows(std::span<const PageId> pages) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(pages, [&](PageId page) { return windows_[page.value()] > 0; });
}

void KeptWindows::drop_all() {
  const std::lock_guard lock(mutex_);
  for (auto entry = kept_.begin(); entry != kept_.end(); entry = remove(entry)) {
    unmap(entry, 0, entry->window->kept().size());
  }
}

void KeptWindows::let_go(std::span<const PageId> pages) {
  const std::lock_guard lock(mutex_);
  std::set<PageId> wanted;
  for (const PageId page : pages) {
    if (windows_[page.value()] > 0) {
      wanted.insert(page);
    }
  }
  const auto shows_one = [&](const auto& page) { return page && wanted.contains(*page); };
  for (Kept& kept : kept_) {
    kept.goes = kept.goes || std::ranges::any_of(kept.window->kept(), shows_one);
  }
}

void KeptWindows::let_go(const Window& window) {
  const std::lock_guard lock(mutex_);
  if (const auto found = find(window); found != kept_.end()) {
    found->goes = true;
  }
}

bool KeptWindows::has_let_go() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(kept_, &Kept::goes);
}

void KeptWindows::drop_some(std::size_t pages) {
  const std::lock_guard lock(mutex_);
  const auto entry = std::ranges::find_if(kept_, &Kept::goes);
  if (entry == kept_.end()) {
    return;
  }
  const auto kept = entry->window->kept();
  const auto first = static_cast<std::size_t>(
      std::ranges::find_if(kept, [](const auto& page) { return page.has_value(); }) - kept.begin());
  unmap(entry, first, std::min(pages, kept.size() - first));
  if (entry->mappings == 0) {
    remove(entry);
  }
}

std::uint64_t KeptWindows::bytes() const {
  const std::lock_guard lock(mutex_);
  return shown_ * page_bytes_;
}

std::uint64_t KeptWindows::mappings() const {
  const std::lock_guard lock(mutex_);
  return mappings_;
}

void KeptWindows::check_invariants() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint32_t> windows(windows_.size());
  std::uint64_t shown = 0;
  std::uint64_t mappings = 0;
  for (const Kept& kept : kept_) {
    HEDDLE_CHECK(kept.mappings > 0 && kept.mappings == kept.window->kept_mappings());
    mappings += kept.mappings;
    for (const auto& page : kept.window->kept()) {
      if (page) {
        ++windows[page->value()];
        ++shown;
      }
    }
  }
  HEDDLE_CHECK(windows == windows_ && shown == shown_ && mappings == mappings_);
}

KeptWindows::Entry KeptWindows::find(const Window& window) {
  return std::ranges::find(kept_, &window, &Kept::window);
}

/// As the one that is kept shortest, if there is anything to keep.
void KeptWindows::add(Window& window) {
  const std::uint64_t mappings = window.kept_mappings();
  if (mappings > 0) {
    kept_.push_back({.window = &window, .mappings = mappings});
    mappings_ += mappings;
    count(window, true);
  }
}

/// Counts what is kept of the window, or does so no longer.
void KeptWindows::count(const Window& window, bool shown) {
  for (const auto& page : window.kept()) {
    if (page && shown) {
      ++windows_[page->value()];
      ++shown_;
    } else if (page) {
      --windows_[page->value()];
      --shown_;
    }
  }
}

void KeptWindows::unmap(Entry entry, std::size_t first, std::size_t pages) {
  if (pages == 0) {
    return;
  }
  for (const auto& page : entry->window->kept().subspan(first, pages)) {
    if (page) {
      --windows_[page->value()];
      --shown_;
    }
  }
  entry->window->drop_kept(first, pages);
  mappings_ -= entry->mappings;
  entry->mappings = entry->window->kept_mappings();
  mappings_ += entry->mappings;
}

KeptWindows::Entry KeptWindows::remove(Entry entry) {
  mappings_ -= entry->mappings;
  return kept_.erase(entry);
}

void KeptWindows::trim() {
  std::uint64_t left = mappings_;
  for (auto entry = kept_.begin();
       most_mappings_ > 0 && left > most_mappings_ && entry != kept_.end();
       ++entry) {
    entry->goes = true;
    left -= entry->mappings;
  }
}

}  // namespace heddle::memory
