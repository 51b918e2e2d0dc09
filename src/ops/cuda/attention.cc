#include "ops/attention.h"

#include <array>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/log.h"
#include "base/tunables.h"
#include "device/cuda/cuda_context.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/batch.h"
#include "ops/cuda/counters.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/attention_params.h"
#include "ops/cuda/kernels/attention_shape.h"
#include "ops/cuda/launch.h"
#include "spec/operations.h"

namespace heddle::ops::cuda {
namespace {

/// One of two kernels that do the same for sequences of few and of many rows.
struct Kernel {
  const char* name = "";
  std::int64_t rows = 0;  ///< That a block takes.
  std::int64_t step = 0;  ///< Positions that it takes at once.
  std::uint32_t threads = 0;
  std::uint32_t shared_bytes = 0;
};
struct Family {
  Kernel narrow{};
  Kernel wide{};
  // In the wide one's place where tunables say so; without a name: there is none.
  Kernel broad{};
  Kernel wgmma{};  ///< A block of it has a multiprocessor for itself.
};

template <class Shape>
constexpr Kernel mma_kernel(const char* name) {
  return {.name = name,
          .rows = Shape::kRows,
          .step = Shape::kStep,
          .threads = Shape::kThreads,
          .shared_bytes = Shape::kSharedBytes};
}
template <int kHeadDim, bool kCodes = false>
constexpr Family mma_family(const char* narrow,
                            const char* wide,
                            const char* broad = "",
                            const char* wgmma = "") {
  Family family{.narrow = mma_kernel<MmaNarrow<kHeadDim, kCodes>>(narrow),
                .wide = mma_kernel<MmaWide<kHeadDim, kCodes>>(wide),
                .broad = mma_kernel<MmaBroad<kHeadDim>>(broad),
                .wgmma = {}};
  if constexpr (!kCodes && kHeadDim % 64 == 0) {
    family.wgmma = mma_kernel<WgmmaWide<kHeadDim>>(wgmma);
  }
  return family;
}

/// By head_dim / 32 - 1.
constexpr std::int64_t kMmaHeadDims = 32;
constexpr std::array kMma{
    mma_family<32>("heddle_attention_mma_narrow_32", "heddle_attention_mma_wide_32"),
    mma_family<64>("heddle_attention_mma_narrow_64",
                   "heddle_attention_mma_wide_64",
                   "heddle_attention_mma_broad_64",
                   "heddle_attention_wgmma_64"),
    mma_family<96>("heddle_attention_mma_narrow_96", "heddle_attention_mma_wide_96"),
    mma_family<128>("heddle_attention_mma_narrow_128",
                    "heddle_attention_mma_wide_128",
                    "heddle_attention_mma_broad_128",
                    "heddle_attention_wgmma_128"),
    mma_family<160>("heddle_attention_mma_narrow_160", "heddle_attention_mma_wide_160"),
    mma_family<192>("heddle_attention_mma_narrow_192", "heddle_attention_mma_wide_192"),
    mma_family<224>("heddle_attention_mma_narrow_224", "heddle_attention_mma_wide_224"),
    mma_family<256>("heddle_attention_mma_narrow_256",
                    "heddle_attention_mma_wide_256",
                    "",
                    "heddle_attention_wgmma_256")};
static_assert(kMma.size() * kMmaHeadDims == spec::kGpuHeadDim);

/// Over keys and values that are codes, for what heads of models are; nullptr: there is none.
const Family* codes_family(std::int64_t head_dim) {
  static constexpr std::array kFamilies{
      mma_family<64, true>("heddle_attention_codes_narrow_64", "heddle_attention_codes_wide_64"),
      mma_family<96, true>("heddle_attention_codes_narrow_96", "heddle_attention_codes_wide_96"),
      mma_family<128, true>("heddle_attention_codes_narrow_128", "heddle_attention_codes_wide_128"),
      mma_family<256, true>("heddle_attention_codes_narrow_256",
                            "heddle_attention_codes_wide_256")};
  switch (head_dim) {
    case 64:
      return &kFamilies[0];
    case 96:
      return &kFamilies[1];
    case 128:
      return &kFamilies[2];
    case 256:
      return &kFamilies[3];
    default:
      return nullptr;
  }
}

Family fma_family(std::int64_t head_dim) {
  const auto kernel = [&](const char* name, int rows) {
    const int bytes = fma_shared_bytes(static_cast<int>(head_dim), rows);
    return Kernel{.name = name,
                  .rows = rows,
                  .step = kFmaStep,
                  .threads = kFmaThreads,
                  .shared_bytes = static_cast<std::uint32_t>(bytes)};
  };
  const Kernel wide = kernel("heddle_attention_fma_wide", kFmaWideRows);
  return {.narrow = kernel("heddle_attention_fma_narrow", kFmaNarrowRows),
          .wide = wide.shared_bytes <= kSharedBytesEverywhere
                      ? wide
                      : kernel("heddle_attention_fma_medium", kFmaMediumRows),
          .broad = {},
          .wgmma = {}};
}

/// The kernels on tensor cores, where they can: keys in bfloat16 or codes that arrive sixteen bytes
/// at a time, queries and results in pairs. nullptr elsewhere.
const Family* mma_family_of(const AttentionArgs& args) {
  const std::int64_t head_dim = args.kv.head_dim;
  const bool suits =
      (args.kv.dtype == DType::kBf16 || args.kv.scaled()) && head_dim % kMmaHeadDims == 0 &&
      kv_moves_by(16 / static_cast<std::int64_t>(spec::kv_element_bytes(args.kv.dtype)), args.kv) &&
      moves_by(2, args.query.data, args.query.dtype, args.query.stride[0]) &&
      moves_by(2, args.out.data, args.out.dtype, args.out.stride[0]);
  if (!suits) {
    return nullptr;
  }
  return args.kv.scaled() ? codes_family(head_dim)
                          : &kMma[static_cast<std::size_t>(head_dim / kMmaHeadDims - 1)];
}

/// What a launch looks like, by what the host knows of the batch: how many tokens and sequences
/// there are, not whose the tokens are nor how long the sequences.
struct Plan {
  Family family{};
  std::int64_t narrow_blocks = 0;  ///< Along x; 0: no sequence can be narrow.
  std::int64_t wide_blocks = 0;    ///< Along x; 0: no sequence can be wide.
  std::int64_t narrow_splits = 1;
  std::int64_t wide_splits = 1;
};

/// Blocks that a multiprocessor is to have, by splitting if need be. Two fit at once; more of the
/// narrow ones, which are of sequences whose lengths may be far apart. To be measured on a GPU.
std::int64_t narrow_blocks_each() {
  return tuned(Tuned::kNarrowBlocks);
}
std::int64_t wide_blocks_each(bool wgmma) {
  const std::int64_t blocks = tuned(Tuned::kWideBlocks);
  return wgmma ? div_up(blocks, 2) : blocks;
}

/// Whether the device has products of warpgroups, and they are wanted.
bool wants_wgmma(const device::CudaContext& context) {
  if (tuned(Tuned::kWgmmaAttention) == 0 ||
      context.attribute(device::kAttributeComputeCapabilityMajor) != 9 ||
      context.attribute(device::kAttributeComputeCapabilityMinor) != 0) {
    return false;
  }
  [[maybe_unused]] static const bool told = [] {
    log::info("attention of prompts is by wgmma", {{"told_by", "HEDDLE_TUNE_WGMMA_ATTENTION"}});
    return true;
  }();
  return true;
}

/// Parts to split positions into so that `blocks` become about `wanted`.
std::int64_t splits_for(std::int64_t blocks, std::int64_t wanted, std::int64_t steps) {
  const std::int64_t steps_min = tuned(Tuned::kSplitSteps);  // The next is on its way meanwhile.
  const std::int64_t splits =
      std::min(wanted / std::max(blocks, std::int64_t{1}), steps / steps_min);
  return std::clamp(splits, std::int64_t{1}, std::int64_t{kAttentionSplitsMax});
}

/// Scratch that one part of the positions takes: sum, maximum and result of all heads' rows.
std::size_t split_bytes(const AttentionArgs& args) {
  return static_cast<std::size_t>(args.query.shape[0] * args.query.shape[1] *
                                  (args.kv.head_dim + 2)) *
         sizeof(float);
}

/// For at most `splits` parts, or 1.
Plan plan_of(const AttentionArgs& args, const device::CudaContext& context, std::int64_t splits) {
  const std::int64_t multiprocessors = context.attribute(device::kAttributeMultiprocessorCount);
  const std::int64_t tokens = args.query.shape[0];
  const std::int64_t sequences = args.rows.sequences();
  const std::int64_t kv_heads = args.kv.kv_heads;
  const std::int64_t group = args.query.shape[1] / kv_heads;
  const Family* const mma = mma_family_of(args);
  Plan plan{.family = mma != nullptr ? *mma : fma_family(args.kv.head_dim)};
  if (tuned(Tuned::kWideRows) == plan.family.broad.rows && *plan.family.broad.name != 0) {
    plan.family.wide = plan.family.broad;
  }
  const bool wgmma = *plan.family.wgmma.name != 0 && wants_wgmma(context);
  if (wgmma) {
    plan.family.wide = plan.family.wgmma;
  }
  const bool may_be_narrow = group <= plan.family.narrow.rows;
  // Each sequence has a token, so that this many have more than one at most.
  const std::int64_t wide = may_be_narrow ? std::min(sequences, tokens - sequences) : sequences;
  plan.narrow_blocks = may_be_narrow ? sequences : 0;
  plan.wide_blocks = wide == 0 ? 0 : tokens * group / plan.family.wide.rows + wide;
  std::int64_t positions = args.kv.table.shape[1] * args.kv.block_tokens;
  if (args.window > 0) {
    positions = std::min(positions, args.window + plan.family.wide.rows);
  }
  const auto steps = [&](const Kernel& kernel) { return div_up(positions, kernel.step); };
  plan.narrow_splits = splits_for(plan.narrow_blocks * kv_heads,
                                  narrow_blocks_each() * multiprocessors,
                                  steps(plan.family.narrow));
  plan.wide_splits = splits_for(plan.wide_blocks * kv_heads,
                                wide_blocks_each(wgmma) * multiprocessors,
                                steps(plan.family.wide));
  plan.narrow_splits =
      plan.narrow_blocks == 0 ? 1 : std::clamp(splits, std::int64_t{1}, plan.narrow_splits);
  plan.wide_splits =
      plan.wide_blocks == 0 ? 1 : std::clamp(splits, std::int64_t{1}, plan.wide_splits);
  return plan;
}

AttentionPartsParams parts_params(const AttentionParts& parts, bool only_missing) {
  return {.begin = parts.begin.as<std::int32_t>(),
          .end = parts.end.as<std::int32_t>(),
          .resumed = parts.resumed.as<float>(),
          .resumed_stride = parts.resumed.stride[0],
          .left = parts.left.as<float>(),
          .left_stride = parts.left.stride[0],
          .present = parts.present() || parts.left.present() ? 1 : 0,
          .only_missing = only_missing ? 1 : 0};
}

QueryTurnParams turn_params(const QueryTurn& turn) {
  return {.cos_sin = turn.cos_sin.as<float>(),
          .cos_sin_stride = turn.cos_sin.stride[0],
          .norm = turn.norm.as<float>(),
          .eps = turn.eps};
}

AttentionParams params_of(const AttentionArgs& args, const Plan& plan, bool only_missing) {
  const std::int64_t tokens = args.query.shape[0];
  const std::int64_t heads = args.query.shape[1];
  return {.batch = batch_params(args.rows, tokens),
          .kv = paged_kv_params(args.kv),
          .query = args.query.data,
          .query_stride = args.query.stride[0],
          .out = args.out.data,
          .out_stride = args.out.stride[0],
          .lse = args.lse.present() ? args.lse.as<float>() : nullptr,
          .lse_stride = args.lse.stride[0],
          .partial_out = nullptr,
          .partial_state = nullptr,
          .parts = parts_params(args.parts, only_missing),
          .turn = turn_params(args.turn),
          .tokens = tokens,
          .heads = static_cast<std::int32_t>(heads),
          .group = static_cast<std::int32_t>(heads / args.kv.kv_heads),
          .window = static_cast<std::int32_t>(args.window),
          .query_bf16 = args.query.dtype == DType::kBf16,
          .out_bf16 = args.out.dtype == DType::kBf16,
          .quads = kv_moves_by(4, args.kv) &&
                   moves_by(4, args.query.data, args.query.dtype, args.query.stride[0]),
          .narrow_rows =
              static_cast<std::int32_t>(plan.narrow_blocks > 0 ? plan.family.narrow.rows : 0),
          .narrow_splits = static_cast<std::int32_t>(plan.narrow_splits),
          .wide_splits = static_cast<std::int32_t>(plan.wide_splits),
          .counters = nullptr,
          .scale_log2 = args.scale * std::numbers::log2e_v<float>,
          .cap_log2 = args.soft_cap * std::numbers::log2e_v<float>,
          .cap_turn = args.soft_cap > 0.0F
                          ? 2.0F * args.scale * std::numbers::log2e_v<float> / args.soft_cap
                          : 0.0F,
          .sinks = args.sinks.as<float>()};
}

void launch_blocks(device::CudaStream& stream,
                   const Kernel& which,
                   std::int64_t blocks,
                   std::int64_t splits,
                   const AttentionParams& params) {
  if (blocks > 0) {
    stream.launch(kernel(which.name),
                  {.grid = {static_cast<std::uint32_t>(blocks),
                            static_cast<std::uint32_t>(params.kv.kv_heads),
                            static_cast<std::uint32_t>(splits)},
                   .block = {which.threads, 1, 1},
                   .shared_bytes = which.shared_bytes},
                  params);
  }
}

void enqueue(device::CudaStream& cuda, const AttentionArgs& args, bool only_missing) {
  HEDDLE_CHECK(args.kv.head_dim <= spec::kGpuHeadDim);
  const Plan plan = plan_of(args,
                            cuda.device().context(),
                            static_cast<std::int64_t>(std::min<std::size_t>(
                                cuda.scratch_limit() / split_bytes(args), kAttentionSplitsMax)));
  const std::int64_t splits = std::max(plan.narrow_splits, plan.wide_splits);
  AttentionParams params = params_of(args, plan, only_missing);
  const bool partial = splits > 1 || params.parts.present != 0;
  if (partial) {
    const std::int64_t rows = splits * params.tokens * params.heads;
    std::byte* scratch = cuda.scratch(static_cast<std::size_t>(splits) * split_bytes(args));
    if (scratch == nullptr) {
      return;  // The stream has failed.
    }
    params.partial_out = reinterpret_cast<float*>(scratch);
    params.partial_state = params.partial_out + rows * args.kv.head_dim;
  }
  if (plan.narrow_splits > 1 && params.parts.present == 0) {
    params.counters = cuda.attachment<Counters>().get(cuda, plan.narrow_blocks * args.kv.kv_heads);
  }
  launch_blocks(cuda, plan.family.narrow, plan.narrow_blocks, plan.narrow_splits, params);
  launch_blocks(cuda, plan.family.wide, plan.wide_blocks, plan.wide_splits, params);
  const bool narrow_left = plan.narrow_splits > 1 && params.counters == nullptr;
  const bool wide_left = plan.wide_blocks > 0 && plan.wide_splits > 1;
  if (narrow_left || wide_left || params.parts.present != 0) {
    constexpr std::int64_t kWarps = 4;
    constexpr std::int64_t kBlocksMax = 65535;
    cuda.launch(
        kernel("heddle_attention_merge"),
        {.grid = {static_cast<std::uint32_t>(params.tokens),
                  static_cast<std::uint32_t>(std::min(div_up(params.heads, kWarps), kBlocksMax)),
                  1},
         .block = {kWarps * 32, 1, 1}},
        params);
  }
}

}  // namespace

void attention(device::Stream& stream, const AttentionArgs& args) {
  enqueue(cuda_stream(stream), args, /*only_missing=*/false);
}

bool attention_turns(const AttentionArgs& args) {
  const ConstTensorRef& angles = args.turn.cos_sin;
  return args.query.dtype == DType::kBf16 && angles.shape[1] == args.kv.head_dim &&
         mma_family_of(args) != nullptr && moves_by(2, angles.data, angles.dtype, angles.stride[0]);
}

void attention_of_missing(device::Stream& stream, const AttentionArgs& args) {
  enqueue(cuda_stream(stream), args, /*only_missing=*/true);
}

}  // namespace heddle::ops::cuda
