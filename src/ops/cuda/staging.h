#pragma once

#include <cstddef>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"

namespace heddle::ops::cuda {

/// Pinned memory of the host through which a stream's exchanges go. Grow-only.
class Staging {
 public:
  /// At least `bytes` of it, which work of the stream may still use. Null where there is no more,
  /// which fails the stream.
  std::byte* memory(device::CudaStream& stream, std::size_t bytes) {
    if (buffer_.bytes() < bytes) {
      const Result<void> idle = stream.synchronize();  // What is there may be in use, and goes.
      Result<device::Buffer> grown =
          idle ? stream.device().allocate(device::Place::kHost, bytes) : idle.error();
      if (!grown) {
        stream.fail(grown.error());
        return nullptr;
      }
      buffer_ = std::move(*grown);
    }
    return buffer_.data();
  }

 private:
  device::Buffer buffer_{};
};

}  // namespace heddle::ops::cuda
