#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/linear.h"

namespace heddle::ops::cuda {

/// Enqueues a product with weights of kF8Both, as linear.h says, by cuBLASLt's product of FP8:
/// tokens become FP8, slices of panels become plain rows, and what comes of both meets the scales
/// of token and row, in float. False, and nothing enqueued, where the library has no such products
/// (on GPUs before compute capability 8.9, where there is none, or it is old), where tokens begin
/// anywhere, or where there is no room for slices that are worth their launches.
bool multiply_f8(device::CudaStream& stream, const LinearArgs& args);

}  // namespace heddle::ops::cuda
