#include "ops/experts.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/experts_params.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/panels.h"
#include "ops/silu_mul.h"
#include "spec/block_panels.h"
#include "spec/operations.h"

namespace heddle::ops::cuda {

static_assert(spec::kGpuActiveExperts == kActiveExpertsMax && spec::kGpuExperts == kExpertsMax);

namespace {

/// What the operation works in: scratch memory of the stream, piece after piece.
struct ExpertScratch {
  ExpertTile* tiles = nullptr;
  std::int32_t* count = nullptr;
  std::int32_t* rows = nullptr;
  std::int32_t* slots = nullptr;
  std::byte* gated = nullptr;    ///< bf16, by slot.
  std::byte* in = nullptr;       ///< f32, by slot, where gates and ups are apart.
  std::byte* product = nullptr;  ///< f32, by slot.
};

/// Of a part of the tokens.
struct ExpertWork {
  std::int64_t tokens = 0;
  std::int64_t active = 0;
  std::int64_t experts = 0;
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  bool apart = false;  ///< Gates and ups are two matrices.

  [[nodiscard]] std::int64_t slots() const { return tokens * active; }
  /// Tokens that a block takes, and how many tiles there are at most: each expert may have one that
  /// is not full.
  [[nodiscard]] std::int64_t tile() const { return panel_tile_tokens(tokens); }
  [[nodiscard]] std::int64_t tiles() const {
    return std::min(slots(), std::min(slots(), experts) + slots() / tile());
  }
};

ExpertScratch place(const ExpertWork& work, std::byte* memory) {
  const auto take = [&memory](std::int64_t bytes) {
    std::byte* const piece = memory;
    memory += div_up(bytes, kExpertPiece) * kExpertPiece;
    return piece;
  };
  constexpr auto kInt = static_cast<std::int64_t>(sizeof(std::int32_t));
  const std::int64_t slots = work.slots();
  ExpertScratch scratch;
  scratch.tiles = reinterpret_cast<ExpertTile*>(
      take(work.tiles() * static_cast<std::int64_t>(sizeof(ExpertTile))));
  scratch.count = reinterpret_cast<std::int32_t*>(take(kInt));
  scratch.rows = reinterpret_cast<std::int32_t*>(take(slots * kInt));
  scratch.slots = reinterpret_cast<std::int32_t*>(take(slots * kInt));
  scratch.gated = take(slots * work.width * 2);
  scratch.in = take(work.apart ? slots * 2 * work.width * 4 : 0);
  scratch.product = take(slots * work.hidden * 4);
  return scratch;
}

/// A product of every slot with its expert's matrix of `outputs` rows. Of `tiles` biases, limits
/// and rows are set.
void multiply(device::CudaStream& stream,
              const ExpertWork& work,
              const ExpertScratch& scratch,
              const ConstTensorRef& weight,
              std::int64_t outputs,
              LinearParams linear,
              ExpertTiles tiles) {
  linear.weight = weight.data;
  linear.outputs = static_cast<std::int32_t>(outputs);
  linear.inputs = static_cast<std::int32_t>(weight.shape[1]);
  tiles.tiles = scratch.tiles;
  tiles.count = scratch.count;
  tiles.weight_bytes = outputs * spec::row_bytes(weight.dtype, weight.shape[1]);
  launch_panels(
      stream, {.linear = linear, .experts = tiles}, weight.dtype, work.tile(), work.tiles());
}

void sort_by_expert(device::CudaStream& stream,
                    const ExpertsArgs& args,
                    const ExpertWork& work,
                    const ExpertScratch& scratch) {
  stream.launch(kernel("heddle_plan_experts"),
                {.grid = {1, 1, 1}, .block = {kPlanThreads, 1, 1}},
                PlanExpertsParams{.chosen = args.chosen.as<std::int32_t>(),
                                  .chosen_stride = args.chosen.stride[0],
                                  .tokens = static_cast<std::int32_t>(work.tokens),
                                  .active = static_cast<std::int32_t>(work.active),
                                  .experts = static_cast<std::int32_t>(work.experts),
                                  .tile_tokens = static_cast<std::int32_t>(work.tile()),
                                  .tiles = scratch.tiles,
                                  .count = scratch.count,
                                  .rows = scratch.rows,
                                  .slots = scratch.slots});
}

/// Gates and ups of every slot, and what becomes of them.
void gate(device::CudaStream& stream,
          const ExpertsArgs& args,
          const ExpertWork& work,
          const ExpertScratch& scratch) {
  LinearParams linear{.x = args.x.data,
                      .x_stride = args.x.stride[0] * dtype_size(args.x.dtype),
                      .aligned = moves_by(4, args.x.data, args.x.dtype, args.x.stride[0])};
  ExpertTiles tiles{.rows = scratch.rows,
                    .bias = args.gate_up_bias.as<float>(),
                    .bias_stride = 2 * work.width,
                    .limit = args.limit,
                    .gain = args.gain};
  if (!work.apart) {
    linear.out = scratch.gated;
    linear.out_stride = work.width;
    linear.out_bf16 = true;
    linear.gated = true;
    multiply(stream, work, scratch, args.gate_up, 2 * work.width, linear, tiles);
    return;
  }
  linear.out = scratch.in;
  linear.out_stride = 2 * work.width;
  multiply(stream, work, scratch, args.gate_up, work.width, linear, tiles);
  linear.out = scratch.in + work.width * 4;
  tiles.bias = tiles.bias == nullptr ? nullptr : tiles.bias + work.width;
  multiply(stream, work, scratch, args.up, work.width, linear, tiles);
  silu_mul(stream,
           {.gate_up = tensor_2d(scratch.in, DType::kF32, work.slots(), 2 * work.width),
            .out = tensor_2d(scratch.gated, DType::kBf16, work.slots(), work.width),
            .limit = args.limit,
            .gain = args.gain});
}

void add(device::CudaStream& stream,
         const ExpertsArgs& args,
         const ExpertWork& work,
         const ExpertScratch& scratch) {
  const std::int64_t residual_stride = args.residual.present() ? args.residual.stride[0] : 0;
  const bool quads = moves_by(4, args.out.data, DType::kF32, args.out.stride[0], work.hidden) &&
                     moves_by(4, args.residual.data, DType::kF32, residual_stride);
  const AddExpertsParams params{.product = reinterpret_cast<const float*>(scratch.product),
                                .slots = scratch.slots,
                                .weights = args.weights.as<float>(),
                                .weights_stride = args.weights.stride[0],
                                .residual = args.residual.as<float>(),
                                .residual_stride = residual_stride,
                                .out = args.out.as<float>(),
                                .out_stride = args.out.stride[0],
                                .columns = work.hidden,
                                .active = static_cast<std::int32_t>(work.active),
                                .quads = quads};
  stream.launch(kernel("heddle_add_experts"),
                shape_of_rows(work.tokens, quads ? work.hidden / 4 : work.hidden),
                params);
}

/// The experts of some tokens.
void take_experts(device::CudaStream& stream, const ExpertsArgs& args) {
  const ExpertWork work{.tokens = args.x.shape[0],
                        .active = args.chosen.shape[1],
                        .experts = args.down.shape[0] / args.x.shape[1],
                        .hidden = args.x.shape[1],
                        .width = args.gated.shape[1],
                        .apart = args.up.present()};
  std::byte* const memory = stream.scratch(expert_scratch_bytes(
      work.tokens, work.active, work.experts, work.hidden, work.width, work.apart));
  if (memory == nullptr) {
    return;  // The stream has failed.
  }
  const ExpertScratch scratch = place(work, memory);
  sort_by_expert(stream, args, work, scratch);
  gate(stream, args, work, scratch);
  multiply(stream,
           work,
           scratch,
           args.down,
           work.hidden,
           {.x = scratch.gated,
            .x_stride = work.width * 2,
            .out = scratch.product,
            .out_stride = work.hidden,
            .aligned = work.width % 4 == 0},
           {.bias = args.down_bias.as<float>(), .bias_stride = work.hidden});
  add(stream, args, work, scratch);
}

}  // namespace

void choose_experts(device::Stream& stream, const ChooseExpertsArgs& args) {
  const std::int64_t tokens = args.logits.shape[0];
  const std::int64_t active = args.chosen.shape[1];
  HEDDLE_CHECK(!args.scale.present());  // spec::cpu_only()
  HEDDLE_CHECK(active <= kActiveExpertsMax && args.logits.shape[1] <= kExpertsMax);
  const ChooseExpertsParams params{.logits = args.logits.as<float>(),
                                   .logits_stride = args.logits.stride[0],
                                   .chosen = args.chosen.as<std::int32_t>(),
                                   .chosen_stride = args.chosen.stride[0],
                                   .weights = args.weights.as<float>(),
                                   .weights_stride = args.weights.stride[0],
                                   .tokens = static_cast<std::int32_t>(tokens),
                                   .experts = static_cast<std::int32_t>(args.logits.shape[1]),
                                   .active = static_cast<std::int32_t>(active),
                                   .normalised = args.normalised};
  const std::int64_t blocks = div_up(tokens, std::int64_t{kChooseThreads / 32});
  cuda_stream(stream).launch(
      kernel("heddle_choose_experts"),
      {.grid = {static_cast<std::uint32_t>(blocks), 1, 1}, .block = {kChooseThreads, 1, 1}},
      params);
}

void experts(device::Stream& stream, const ExpertsArgs& args) {
  HEDDLE_CHECK(!args.gelu);  // spec::cpu_only()
  const std::int64_t tokens = args.x.shape[0];
  for (std::int64_t first = 0; first < tokens; first += kExpertTokens) {
    const std::int64_t some = std::min(kExpertTokens, tokens - first);
    const auto part_of = [&](auto tensor) {
      if (tensor.present()) {
        tensor.data += first * tensor.stride[0] * dtype_size(tensor.dtype);
        tensor.shape[0] = some;
      }
      return tensor;
    };
    ExpertsArgs part = args;
    part.x = part_of(args.x);
    part.chosen = part_of(args.chosen);
    part.weights = part_of(args.weights);
    part.residual = part_of(args.residual);
    part.out = part_of(args.out);
    take_experts(cuda_stream(stream), part);
  }
}

void share_rows(device::Stream& stream, const ShareRowsArgs& args) {
  const std::int64_t columns = args.rows.shape[1];
  cuda_stream(stream).launch(kernel("heddle_share_rows"),
                             shape_of_rows(args.rows.shape[0], columns),
                             ShareRowsParams{.gate = args.gate.as<float>(),
                                             .gate_stride = args.gate.stride[0],
                                             .rows = args.rows.as<float>(),
                                             .rows_stride = args.rows.stride[0],
                                             .columns = columns});
}

}  // namespace heddle::ops::cuda
