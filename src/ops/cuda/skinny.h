#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/cuda/kernels/linear_params.h"
#include "ops/linear.h"

namespace heddle::ops::cuda {

/// Whether the skinny kernels do such a product: of bfloat16, of up to kSkinnyTokensMax tokens, in
/// rows that are aligned.
[[nodiscard]] bool skinny_takes(const LinearArgs& args);

/// Enqueues a product that they take, gated where `params` says so. False, and nothing enqueued,
/// where the stream has too little scratch memory or has failed.
bool launch_skinny(device::CudaStream& stream, const LinearParams& params);

}  // namespace heddle::ops::cuda
