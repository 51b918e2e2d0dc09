#pragma once

#include "device/cuda/cuda_stream.h"
#include "ops/context.h"

namespace heddle::ops::cuda {

/// Kernels for CudaStreams.
[[nodiscard]] const KernelTable& cuda_kernels();

void attention(device::Stream& stream, const AttentionArgs& args);
void gather_rows(device::Stream& stream, const GatherRowsArgs& args);
void kv_append(device::Stream& stream, const KvAppendArgs& args);
void rms_norm(device::Stream& stream, const RmsNormArgs& args);
void rope(device::Stream& stream, const RopeArgs& args);
void silu_mul(device::Stream& stream, const SiluMulArgs& args);
void wait(device::Stream& stream, const WaitArgs& args);

/// The stream, known to be a CUDA device's: a kernel table goes with one kind of device.
[[nodiscard]] inline device::CudaStream& cuda_stream(device::Stream& stream) {
  return static_cast<device::CudaStream&>(stream);
}

}  // namespace heddle::ops::cuda
