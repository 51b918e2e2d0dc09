#include "ops/gated_delta.h"

#include <algorithm>
#include <span>

#include "ops/cuda/batch.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/gated_delta_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

static_assert(kDeltaLongKey == kDeltaDimMax && kDeltaInputThreads == kDeltaDimMax);

namespace {

GatedDeltaParams params_of(const GatedDeltaArgs& args, float* rows) {
  const spec::LinearAttention& shape = args.shape;
  const DeltaHeadLayout layout(shape);
  const std::int64_t tokens = args.out.shape[0];
  const bool copies = args.copy_behind.rank > 0;
  return {.batch = batch_params(args.rows, tokens),
          .parts = {},
          .first_head = 0,
          .heads = 0,
          .key_heads = static_cast<std::int32_t>(shape.key_heads),
          .value_heads = static_cast<std::int32_t>(shape.value_heads),
          .key_dim = static_cast<std::int32_t>(shape.key_dim),
          .value_dim = static_cast<std::int32_t>(shape.value_dim),
          .kernel = static_cast<std::int32_t>(shape.kernel),
          .tiled = shape.tiled ? 1 : 0,
          .tail = layout.tail,
          .head_bytes = layout.bytes(),
          .in = args.in.as<float>(),
          .in_stride = args.in.stride[0],
          .rates = args.rates.as<float>(),
          .rates_stride = args.rates.stride[0],
          .conv = args.conv.as<float>(),
          .fading = args.fading.as<float>(),
          .step_bias = args.step_bias.as<float>(),
          .norm = args.norm.as<float>(),
          .eps = args.eps,
          .tokens = static_cast<std::int32_t>(tokens),
          .copy_behind = copies ? args.copy_behind.as<std::int32_t>() : nullptr,
          .copy_columns = copies ? static_cast<std::int32_t>(args.copy_behind.shape[1]) : 0,
          .rows = rows,
          .out = args.out.data,
          .out_stride = args.out.stride[0],
          .out_bf16 = args.out.dtype == DType::kBf16 ? 1 : 0};
}

DeltaPartParams part_params(const DeltaPart& part, bool copies) {
  return {.heads = static_cast<std::int32_t>(part.heads),
          .base = part.base,
          .block_bytes = part.block_bytes,
          .offset = part.offset,
          .table = part.table.as<std::int32_t>(),
          .table_stride = part.table.stride[0],
          .copies = copies ? part.copies.as<std::int32_t>() : nullptr,
          .copies_stride = copies ? part.copies.stride[0] : 0};
}

/// The key heads of some parts, whose numbers are in `params`: what goes into the rule, and the
/// rule.
void run_parts(device::CudaStream& stream, const GatedDeltaParams& params, std::int64_t sequences) {
  const auto served = static_cast<std::uint32_t>(params.value_heads / params.key_heads);
  const auto heads = static_cast<std::uint32_t>(params.heads);
  const std::int64_t widest = std::max(params.key_dim, params.value_dim);
  stream.launch(kernel("heddle_delta_inputs"),
                {.grid = {static_cast<std::uint32_t>(params.tokens), 2 + served, heads},
                 .block = {static_cast<std::uint32_t>(div_up(widest, 32) * 32), 1, 1}},
                params);
  stream.launch(
      kernel(params.key_dim <= kDeltaShortKey ? "heddle_delta_rule" : "heddle_delta_rule_long"),
      {.grid = {static_cast<std::uint32_t>(sequences),
                heads * served,
                static_cast<std::uint32_t>(
                    div_up(std::int64_t{params.value_dim}, std::int64_t{kDeltaStrip}))},
       .block = {kDeltaRuleThreads, 1, 1}},
      params);
}

}  // namespace

void gated_delta(device::Stream& stream, const GatedDeltaArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  const std::int64_t tokens = args.out.shape[0];
  std::byte* const scratch = cuda.scratch(delta_scratch_bytes(tokens, args.shape));
  if (scratch == nullptr) {
    return;  // The stream has failed.
  }
  GatedDeltaParams params = params_of(args, reinterpret_cast<float*>(scratch));
  const std::span<const DeltaPart> all(args.parts);
  for (std::size_t first = 0; first < all.size(); first += kDeltaParts) {
    params.first_head += params.heads;
    params.heads = 0;
    const auto some = all.subspan(first, std::min<std::size_t>(kDeltaParts, all.size() - first));
    for (std::size_t i = 0; i < some.size(); ++i) {
      params.parts[i] = part_params(some[i], params.copy_columns > 0);
      params.heads += params.parts[i].heads;
    }
    run_parts(cuda, params, args.rows.sequences());
  }
  constexpr std::int64_t kWarps = kDeltaGateThreads / 32;
  cuda.launch(
      kernel("heddle_delta_gate"),
      {.grid = {static_cast<std::uint32_t>(tokens),
                static_cast<std::uint32_t>(div_up(std::int64_t{params.value_heads}, kWarps)),
                1},
       .block = {kDeltaGateThreads, 1, 1}},
      params);
}

}  // namespace heddle::ops::cuda
