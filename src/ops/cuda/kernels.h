#pragma once

#include <cstdint>

#include "device/cuda/cuda_stream.h"
#include "ops/context.h"

namespace heddle::ops::cuda {

/// Of so many tokens KernelTable::narrow_from is: there are no thin products any more.
inline constexpr std::int64_t kNarrowFrom = 9;

/// Kernels for CudaStreams.
[[nodiscard]] const KernelTable& cuda_kernels();

void add_low_rank_tiles(device::Stream& stream, const AddLowRankTilesArgs& args);
void add_norm(device::Stream& stream, const AddNormArgs& args);
void all_gather(device::Stream& stream, const AllGatherArgs& args);
void all_reduce(device::Stream& stream, const AllReduceArgs& args);
void attention(device::Stream& stream, const AttentionArgs& args);
bool attention_turns(const AttentionArgs& args);
/// Of the rows alone whose state in parts.left is marked as missing.
void attention_of_missing(device::Stream& stream, const AttentionArgs& args);
void await_guest_attention(device::Stream& stream, const GuestAttentionArgs& args);
void choose_experts(device::Stream& stream, const ChooseExpertsArgs& args);
void experts(device::Stream& stream, const ExpertsArgs& args);
void gated_delta(device::Stream& stream, const GatedDeltaArgs& args);
void gather_rows(device::Stream& stream, const GatherRowsArgs& args);
void gelu_mul(device::Stream& stream, const GeluMulArgs& args);
void linear(device::Stream& stream, const LinearArgs& args);
bool linear_norm(device::Stream& stream, const LinearNormArgs& args);
bool linear_silu(device::Stream& stream, const LinearSiluArgs& args);
void log_probs(device::Stream& stream, const LogProbsArgs& args);
void post_guest_attention(device::Stream& stream, const GuestAttentionArgs& args);
void penalties(device::Stream& stream, const PenaltiesArgs& args);
void rescale(device::Stream& stream, const RescaleArgs& args);
void rms_norm(device::Stream& stream, const RmsNormArgs& args);
void rope_append(device::Stream& stream, const RopeAppendArgs& args);
void sample(device::Stream& stream, const SampleArgs& args);
void send(device::Stream& stream, const SendArgs& args);
void share_rows(device::Stream& stream, const ShareRowsArgs& args);
void sigmoid_mul(device::Stream& stream, const SigmoidMulArgs& args);
void silu_mul(device::Stream& stream, const SiluMulArgs& args);
void wait(device::Stream& stream, const WaitArgs& args);

/// The stream, known to be a CUDA device's: a kernel table goes with one kind of device.
[[nodiscard]] inline device::CudaStream& cuda_stream(device::Stream& stream) {
  return static_cast<device::CudaStream&>(stream);
}

}  // namespace heddle::ops::cuda
