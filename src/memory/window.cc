#include "memory/window.h"

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

Window::Window(Window&& other) noexcept
    : device_(other.device_),
      range_(std::exchange(other.range_, {})),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

Window& Window::operator=(Window&& other) noexcept {
  if (this != &other) {
    reset();
    device_ = other.device_;
    range_ = std::exchange(other.range_, {});
    mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  }
  return *this;
}

Window::~Window() {
  reset();
}

Result<void> Window::map(std::span<const device::PageId> pages, device::Access access) {
  const std::size_t page = device_->properties().page_bytes;
  HEDDLE_CHECK(pages.size() <= (range_.bytes - mapped_bytes_) / page);
  if (auto mapped = device_->map(range_, mapped_bytes_, pages, access); !mapped) {
    return mapped;
  }
  mapped_bytes_ += pages.size() * page;
  return {};
}

void Window::shrink(std::size_t bytes) {
  HEDDLE_CHECK(bytes <= mapped_bytes_);
  if (bytes < mapped_bytes_) {
    device_->unmap(range_, bytes, mapped_bytes_ - bytes);
    mapped_bytes_ = bytes;
  }
}

void Window::unmap_all() {
  shrink(0);
}

void Window::reset() {
  unmap_all();
  if (range_.base != nullptr) {
    device_->release(std::exchange(range_, {}));
  }
}

}  // namespace heddle::memory
