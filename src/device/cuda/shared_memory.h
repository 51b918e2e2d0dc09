#pragma once

#include <cstddef>

#include "base/descriptor.h"
#include "base/result.h"
#include "device/cuda/cuda_context.h"
#include "device/device.h"

// Memory of one GPU that the process of another copies from. Neither needs a context on the other's
// GPU, which would take hundreds of megabytes there.
namespace heddle::device {

/// As Device has them. `bytes` a multiple of the device's granularity. The context outlives what is
/// made.
[[nodiscard]] bool is_linked_to(CudaContext& context, int peer);
Result<SharedBuffer> allocate_shared(CudaContext& context, std::size_t bytes);
Result<Buffer> attach_shared(CudaContext& context, const Descriptor& shared, std::size_t bytes);
/// The same at an address that is reserved and has nothing mapped; whoever reserved it unmaps it.
Result<Descriptor> map_new_shared(CudaContext& context, CUdeviceptr at, std::size_t bytes);
Result<void> map_shared(CudaContext& context,
                        CUdeviceptr at,
                        std::size_t bytes,
                        const Descriptor& shared);

}  // namespace heddle::device
