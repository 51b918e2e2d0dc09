#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/fused.h"

namespace heddle::ops::cuda {

/// linear by heddle's own kernel, of bfloat16, as linear() has it where there is no library.
void launch_plain(device::CudaStream& stream, const LinearArgs& args);

/// linear_silu by heddle's own kernel, which gates at its end, of bfloat16 or int8 and as many
/// tokens as there are.
void launch_gated(device::CudaStream& stream, const LinearSiluArgs& args);

}  // namespace heddle::ops::cuda
