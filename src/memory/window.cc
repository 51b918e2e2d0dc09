#include "memory/window.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace heddle::memory {

Result<Window> Window::create(device::Device& device, std::size_t bytes) {
  HEDDLE_CHECK(bytes > 0);
  const std::size_t page = device.properties().page_bytes;
  const auto range = device.reserve((bytes + page - 1) / page * page);
  if (!range) {
    return range.error();
  }
  return Window(device, *range);
}

Window::Window(device::Device& device, device::AddressRange range)
    : device_(&device), range_(range), shown_(range.bytes / device.properties().page_bytes) {}

Window::Window(Window&& other) noexcept
    : device_(other.device_),
      range_(std::exchange(other.range_, {})),
      shown_(std::exchange(other.shown_, {})),
      access_(other.access_),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      populated_bytes_(std::exchange(other.populated_bytes_, 0)) {}

Window& Window::operator=(Window&& other) noexcept {
  if (this != &other) {
    reset();
    device_ = other.device_;
    range_ = std::exchange(other.range_, {});
    shown_ = std::exchange(other.shown_, {});
    access_ = other.access_;
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
    populated_bytes_ = std::exchange(other.populated_bytes_, 0);
  }
  return *this;
}

Window::~Window() {
  reset();
}

Result<void> Window::map(std::span<const device::PageId> pages, device::Access access) {
  const std::size_t page = device_->properties().page_bytes;
  HEDDLE_CHECK(pages.size() <= (range_.bytes - mapped_bytes_) / page);
  const std::size_t first = mapped_bytes_ / page;
  if (access != access_) {
    drop(first, shown_.size() - first);
    HEDDLE_CHECK(first == 0 || pages.empty());
    access_ = access;
  }
  for (std::size_t at = 0; at < pages.size();) {
    std::size_t end = at;
    while (end < pages.size() && shown_[first + end] != pages[end]) {
      ++end;
    }
    if (auto mapped = map_run(first + at, pages.subspan(at, end - at), access); !mapped) {
      drop(first, end);  // It shows nothing of what was asked for.
      return mapped;
    }
    at = end + 1;  // What is there already is passed over.
  }
  mapped_bytes_ += pages.size() * page;
  return {};
}

/// Shows `pages` from page `first` of the window on, whatever is there.
Result<void> Window::map_run(std::size_t first,
                             std::span<const device::PageId> pages,
                             device::Access access) {
  if (pages.empty()) {
    return {};
  }
  const std::size_t page = device_->properties().page_bytes;
  drop(first, pages.size());
  populated_bytes_ = std::min(populated_bytes_, first * page);
  if (auto mapped = device_->map(range_, first * page, pages, access); !mapped) {
    return mapped;
  }
  std::ranges::copy(pages, shown_.begin() + static_cast<std::ptrdiff_t>(first));
  return {};
}

void Window::shrink(std::size_t bytes) {
  HEDDLE_CHECK(bytes <= mapped_bytes_);
  const std::size_t page = device_->properties().page_bytes;
  const std::size_t count = (mapped_bytes_ - bytes) / page;
  mapped_bytes_ = bytes;
  drop(bytes / page, count);
}

void Window::unmap_all() {
  mapped_bytes_ = 0;
  drop(0, shown_.size());
}

/// Unmaps `count` pages from page `index` on, as far as they are there.
void Window::drop(std::size_t index, std::size_t count) {
  const std::size_t page = device_->properties().page_bytes;
  HEDDLE_CHECK(index * page >= mapped_bytes_ && count <= shown_.size() - index);
  const auto begin = shown_.begin() + static_cast<std::ptrdiff_t>(index);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  const auto first = std::find_if(begin, end, [](const auto& slot) { return slot.has_value(); });
  if (first == end) {
    return;
  }
  auto last = end;
  while (!std::prev(last)->has_value()) {
    --last;
  }
  const auto from = static_cast<std::size_t>(first - shown_.begin()) * page;
  device_->unmap(range_, from, static_cast<std::size_t>(last - first) * page);
  std::fill(first, last, std::nullopt);
  populated_bytes_ = std::min(populated_bytes_, from);
}

bool Window::populate_some(std::size_t bytes) {
  bytes = std::min(bytes, mapped_bytes_ - std::min(populated_bytes_, mapped_bytes_));
  if (bytes > 0) {
    device_->populate(range_, populated_bytes_, bytes);
    populated_bytes_ += bytes;
  }
  return populated_bytes_ < mapped_bytes_;
}

std::uint64_t Window::kept_mappings() const {
  std::uint64_t count = 0;
  const std::optional<device::PageId>* before = nullptr;
  for (const auto& slot : kept()) {
    const bool joins = before != nullptr && before->has_value() && slot.has_value() &&
                       (*before)->value() + 1 == slot->value();
    count += slot.has_value() && !joins ? 1 : 0;
    before = &slot;
  }
  return count;
}

void Window::reset() {
  if (range_.base != nullptr) {
    unmap_all();
    device_->release(std::exchange(range_, {}));
  }
}

}  // namespace heddle::memory
