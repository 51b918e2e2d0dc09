#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "device/device.h"

namespace heddle::ops {

struct AddLowRankArgs;
struct AddLowRankTilesArgs;
struct AddNormArgs;
struct AllGatherArgs;
struct AllReduceArgs;
struct AttentionArgs;
struct ChooseExpertsArgs;
struct ExpertsArgs;
struct GatedDeltaArgs;
struct GatherRowsArgs;
struct GeluArgs;
struct GeluMulArgs;
struct GuestAttentionArgs;
struct LayerNormArgs;
struct LinearArgs;
struct LinearNormArgs;
struct LinearSiluArgs;
struct LogProbsArgs;
struct PenaltiesArgs;
struct RescaleArgs;
struct RmsNormArgs;
struct RopeAppendArgs;
struct SampleArgs;
struct SendArgs;
struct ShareRowsArgs;
struct SigmoidMulArgs;
struct SiluMulArgs;
struct WaitArgs;

/// The kernels of one backend: plain function pointers, so that adding a backend is filling a table
/// and a missing kernel is a null that shows at start-up. Each enqueues its work and returns.
struct KernelTable {
  /// Null, as are gelu and layer_norm, where no model needs it (spec::cpu_only).
  void (*add_low_rank)(device::Stream& stream, AddLowRankArgs args) = nullptr;
  /// In its place where adapters are found on the device; else null.
  void (*add_low_rank_tiles)(device::Stream& stream, const AddLowRankTilesArgs& args) = nullptr;
  void (*add_norm)(device::Stream& stream, const AddNormArgs& args) = nullptr;
  void (*all_gather)(device::Stream& stream, const AllGatherArgs& args) = nullptr;
  void (*all_reduce)(device::Stream& stream, const AllReduceArgs& args) = nullptr;
  void (*attention)(device::Stream& stream, const AttentionArgs& args) = nullptr;
  /// Whether attention() does AttentionArgs::turn of those; null: never.
  bool (*attention_turns)(const AttentionArgs& args) = nullptr;
  /// Null, as is post_guest_attention, where a device cannot have guests.
  void (*await_guest_attention)(device::Stream& stream, const GuestAttentionArgs& args) = nullptr;
  /// Kernels that do not compute: they find out by timing how the products that they are given are
  /// done best, for `most` in all, and the others do nothing. Weights need not be there, outputs
  /// are spoilt. What was done before stays as it is. Null, as is end_survey, or it returns
  /// nullptr, where there is no choice.
  const KernelTable* (*begin_survey)(device::Stream& stream, Duration most) = nullptr;
  void (*choose_experts)(device::Stream& stream, const ChooseExpertsArgs& args) = nullptr;
  /// Gives back what a survey took; returns how many ways were timed.
  std::int64_t (*end_survey)(device::Stream& stream) = nullptr;
  void (*experts)(device::Stream& stream, const ExpertsArgs& args) = nullptr;
  void (*gated_delta)(device::Stream& stream, const GatedDeltaArgs& args) = nullptr;
  void (*gather_rows)(device::Stream& stream, const GatherRowsArgs& args) = nullptr;
  void (*gelu)(device::Stream& stream, const GeluArgs& args) = nullptr;
  void (*gelu_mul)(device::Stream& stream, const GeluMulArgs& args) = nullptr;
  void (*layer_norm)(device::Stream& stream, const LayerNormArgs& args) = nullptr;
  void (*linear)(device::Stream& stream, const LinearArgs& args) = nullptr;
  /// These two: false, and nothing done, where the operations are to be done one by one; null where
  /// they always are.
  bool (*linear_norm)(device::Stream& stream, const LinearNormArgs& args) = nullptr;
  bool (*linear_silu)(device::Stream& stream, const LinearSiluArgs& args) = nullptr;
  void (*log_probs)(device::Stream& stream, const LogProbsArgs& args) = nullptr;
  void (*post_guest_attention)(device::Stream& stream, const GuestAttentionArgs& args) = nullptr;
  void (*penalties)(device::Stream& stream, const PenaltiesArgs& args) = nullptr;
  void (*rescale)(device::Stream& stream, const RescaleArgs& args) = nullptr;
  void (*rms_norm)(device::Stream& stream, const RmsNormArgs& args) = nullptr;
  void (*rope_append)(device::Stream& stream, const RopeAppendArgs& args) = nullptr;
  void (*sample)(device::Stream& stream, const SampleArgs& args) = nullptr;
  /// Null where Stream::copy() does.
  void (*send)(device::Stream& stream, const SendArgs& args) = nullptr;
  void (*share_rows)(device::Stream& stream, const ShareRowsArgs& args) = nullptr;
  void (*sigmoid_mul)(device::Stream& stream, const SigmoidMulArgs& args) = nullptr;
  void (*silu_mul)(device::Stream& stream, const SiluMulArgs& args) = nullptr;
  void (*wait)(device::Stream& stream, const WaitArgs& args) = nullptr;

  /// Whether rope_append does RopeAppendArgs::query_norm and key_norm.
  bool rope_normalises = false;
  /// Of at least so many tokens, products of models in bfloat16 are better handed on in bfloat16,
  /// half as many bytes: linear gives them, rope_append, attention and silu_mul take them. 0: they
  /// do not.
  std::int64_t narrow_from = 0;
};

/// Where an operation runs: passed to every op, never found in a global or a thread local.
struct OpContext {
  device::Stream& stream;
  const KernelTable& kernels;
};

/// The kernels that run on streams of such a device; nullptr where this build has none.
[[nodiscard]] const KernelTable* kernels_for(device::Kind kind);

/// What those kernels are called, for the log: on a CPU the instruction set that they are compiled
/// for. kInvalidArgument if HEDDLE_SIMD names one that this processor does not run; what else is
/// possible is in the message.
[[nodiscard]] Result<std::string> kernels_name(device::Kind kind);

}  // namespace heddle::ops
