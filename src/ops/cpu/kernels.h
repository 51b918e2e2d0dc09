#pragma once

#include "device/cpu/cpu_stream.h"
#include "ops/context.h"

namespace heddle::ops::cpu {

/// Kernels for CpuStreams.
[[nodiscard]] const KernelTable& cpu_kernels();

void add_low_rank(device::Stream& stream, AddLowRankArgs args);
void add_norm(device::Stream& stream, const AddNormArgs& args);
void all_gather(device::Stream& stream, const AllGatherArgs& args);
void all_reduce(device::Stream& stream, const AllReduceArgs& args);
void attention(device::Stream& stream, const AttentionArgs& args);
/// The same within a stream's work, and on the calling thread.
void attention_on(device::ThreadPool& pool, const AttentionArgs& args);
void attention_here(const AttentionArgs& args);
void choose_experts(device::Stream& stream, const ChooseExpertsArgs& args);
void experts(device::Stream& stream, const ExpertsArgs& args);
void share_rows(device::Stream& stream, const ShareRowsArgs& args);
void await_guest_attention(device::Stream& stream, const GuestAttentionArgs& args);
void gated_delta(device::Stream& stream, const GatedDeltaArgs& args);
void gather_rows(device::Stream& stream, const GatherRowsArgs& args);
void gelu(device::Stream& stream, const GeluArgs& args);
void gelu_mul(device::Stream& stream, const GeluMulArgs& args);
void post_guest_attention(device::Stream& stream, const GuestAttentionArgs& args);
void layer_norm(device::Stream& stream, const LayerNormArgs& args);
void linear(device::Stream& stream, const LinearArgs& args);
/// The same within a stream's work.
void linear_here(const LinearArgs& args, device::CpuStream& stream, device::ThreadPool& pool);
void log_probs(device::Stream& stream, const LogProbsArgs& args);
void penalties(device::Stream& stream, const PenaltiesArgs& args);
void rescale(device::Stream& stream, const RescaleArgs& args);
void rms_norm(device::Stream& stream, const RmsNormArgs& args);
void rope_append(device::Stream& stream, const RopeAppendArgs& args);
void sample(device::Stream& stream, const SampleArgs& args);
void sigmoid_mul(device::Stream& stream, const SigmoidMulArgs& args);
void silu_mul(device::Stream& stream, const SiluMulArgs& args);
void silu_mul_here(const SiluMulArgs& args, device::ThreadPool& pool);
void gelu_mul_here(const GeluMulArgs& args, device::ThreadPool& pool);
void wait(device::Stream& stream, const WaitArgs& args);

/// The stream, known to be a CPU's: a kernel table goes with one kind of device.
[[nodiscard]] inline device::CpuStream& cpu_stream(device::Stream& stream) {
  return static_cast<device::CpuStream&>(stream);
}

}  // namespace heddle::ops::cpu
