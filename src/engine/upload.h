#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "device/device.h"

namespace heddle::engine {

/// Small host values of different types, gathered and then sent to the device in one copy. Kept
/// from step to step for its memory, which is the host's on the device side too: today's devices
/// are CPUs. Used by one thread.
class Upload {
 public:
  /// Forgets everything; the stream has done with it.
  void clear() { host_.clear(); }

  /// Takes a copy of `values`; returns where they will be, for at().
  template <class T>
  std::size_t add(std::span<const T> values) {
    const std::size_t offset = (host_.size() + kAlignment - 1) / kAlignment * kAlignment;
    host_.resize(offset + values.size_bytes());
    if (!values.empty()) {
      std::memcpy(host_.data() + offset, values.data(), values.size_bytes());
    }
    return offset;
  }
  template <class T>
  std::size_t add(const std::vector<T>& values) {
    return add(std::span<const T>(values));
  }

  /// Enqueues the copy of all that was added.
  void send(device::Stream& stream) {
    device_.resize(host_.size() + kAlignment);  // Never empty, so that at() is never null.
    stream.copy(device_.data(), host_.data(), host_.size());
  }

  /// On the device, once sent.
  template <class T>
  [[nodiscard]] const T* at(std::size_t offset) const {
    return reinterpret_cast<const T*>(device_.data() + offset);
  }

 private:
  static constexpr std::size_t kAlignment = 16;

  std::vector<std::byte> host_{};
  std::vector<std::byte> device_{};
};

}  // namespace heddle::engine
