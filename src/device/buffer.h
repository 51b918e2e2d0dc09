#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace heddle::device {

/// Where a buffer's memory is.
enum class Place : std::uint8_t {
  kDevice,  ///< The device's own: host code must not touch it.
  kHost,    ///< The host's, pinned: host code and, at the same address, copies and kernels use it.
};

/// Owner of memory that belongs to a device and is none of its pages, from Device::allocate.
/// Movable; frees at the end, when no enqueued work may touch it any more. Does not outlive the
/// device.
class Buffer {
 public:
  /// No memory.
  Buffer() = default;
  /// Takes `data` over; `free` is called with it once.
  Buffer(std::byte* data, std::size_t bytes, std::function<void(std::byte*)> free)
      : data_(data, std::move(free)), bytes_(bytes) {}

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::unique_ptr<std::byte, std::function<void(std::byte*)>> data_{nullptr, [](std::byte*) {}};
  std::size_t bytes_ = 0;
};

}  // namespace heddle::device
