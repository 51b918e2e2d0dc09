#pragma once

#include <cstdint>
#include <utility>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_stream.h"

namespace heddle::ops::cuda {

/// Numbers on the device by which blocks of a kernel find out who of them is last
/// (kernels/last_block.cuh). A kernel leaves them zero, as it found them, so that all kernels of a
/// stream have the same.
class Counters {
 public:
  static constexpr std::int64_t kMost = 16384;

  /// `count` of them, or null: there are fewer, or they cannot be had, which fails the stream.
  std::int32_t* get(device::CudaStream& stream, std::int64_t count) {
    if (count > kMost || !has_memory(stream)) {
      return nullptr;
    }
    return reinterpret_cast<std::int32_t*>(memory_.data());
  }

 private:
  bool has_memory(device::CudaStream& stream) {
    if (memory_.bytes() == 0 && !stream.capturing()) {  // What is recorded was enqueued before.
      auto made = stream.device().allocate(device::Place::kDevice,
                                           static_cast<std::size_t>(kMost) * sizeof(std::int32_t));
      if (made) {
        memory_ = std::move(*made);
      } else {
        stream.fail(made.error());
      }
    }
    return memory_.bytes() > 0;
  }

  device::Buffer memory_{};
};

}  // namespace heddle::ops::cuda
