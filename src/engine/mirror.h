#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/result.h"
#include "device/device.h"

namespace heddle::engine {

/// A piece of memory on the device and the same piece on the host, between which the small values
/// of a pass go: what it needs is gathered and sent in one copy, what it gives is fetched. Kept
/// from pass to pass for its memory. Used by one thread.
class Mirror {
 public:
  /// `device` outlives it.
  explicit Mirror(device::Device& device) : device_(device) {}

  /// Forgets everything; the stream has done with it.
  void clear() {
    values_.clear();
    reserved_ = 0;
  }

  /// Takes a copy of `values`, to be sent; returns where they will be.
  template <class T>
  std::size_t add(std::span<const T> values) {
    HEDDLE_CHECK(reserved_ == 0);
    const std::size_t offset = aligned(values_.size());
    values_.resize(offset + values.size_bytes());
    if (!values.empty()) {
      std::memcpy(values_.data() + offset, values.data(), values.size_bytes());
    }
    return offset;
  }
  template <class T>
  std::size_t add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }
  /// Room for `count` values that the device will write, behind all that was added; not sent.
  template <class T>
  std::size_t reserve(std::size_t count) {
    const std::size_t offset = aligned(values_.size() + reserved_);
    reserved_ = offset + count * sizeof(T) - values_.size();
    return offset;
  }

  /// Makes memory for all that was added and reserved, if there is too little, and enqueues the
  /// copy of what was added. Where it makes memory it waits for the stream. Fails as
  /// Device::allocate and Stream::synchronize.
  Result<void> send(device::Stream& stream);
  /// Enqueues the way back of `bytes` at `offset`, at least 1; host() has them once the stream is
  /// synchronised.
  void fetch(device::Stream& stream, std::size_t offset, std::size_t bytes) {
    stream.copy(host_.data() + offset, device_memory_.data() + offset, bytes);
  }

  /// On the device, once sent.
  template <class T>
  [[nodiscard]] T* device(std::size_t offset) const {
    return reinterpret_cast<T*>(device_memory_.data() + offset);
  }
  /// On the host, once fetched.
  template <class T>
  [[nodiscard]] T* host(std::size_t offset) const {
    return reinterpret_cast<T*>(host_.data() + offset);
  }

 private:
  static constexpr std::size_t kAlignment = 16;

  static std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  device::Device& device_;
  std::vector<std::byte> values_{};
  std::size_t reserved_ = 0;  ///< Bytes behind values_.
  device::Buffer host_{};
  device::Buffer device_memory_{};
};

}  // namespace heddle::engine
