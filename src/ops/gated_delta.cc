#include "ops/gated_delta.h"

#include "base/div_up.h"
#include "ops/checks.h"

namespace heddle::ops {
namespace {

constexpr std::int64_t kStrip = 16;

void check_shape(const spec::LinearAttention& shape) {
  HEDDLE_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
  HEDDLE_CHECK(shape.key_dim > 0 && shape.key_dim <= kDeltaDimMax);
  HEDDLE_CHECK(shape.value_dim > 0 && shape.value_dim <= kDeltaDimMax);
  HEDDLE_CHECK(shape.kernel > 1 && shape.kernel <= kDeltaKernelMax);
}

void check_parts(const GatedDeltaArgs& args) {
  const std::int64_t sequences = args.rows.sequences();
  const std::int64_t head_bytes = DeltaHeadLayout(args.shape).bytes();
  std::int64_t heads = 0;
  for (const DeltaPart& part : args.parts) {
    HEDDLE_CHECK(part.table.rank == 2 && part.table.dtype == DType::kI32);
    HEDDLE_CHECK(part.table.shape[0] == sequences && part.table.shape[1] >= 1);
    HEDDLE_CHECK(part.copies.rank == args.copy_behind.rank);
    if (args.copy_behind.rank > 0) {
      HEDDLE_CHECK(part.copies.dtype == DType::kI32 && part.copies.shape[0] == sequences);
      HEDDLE_CHECK(part.copies.shape[1] == args.copy_behind.shape[1]);
    }
    HEDDLE_CHECK(part.offset >= 0 && part.offset + part.heads * head_bytes <= part.block_bytes);
    heads += part.heads;
  }
  HEDDLE_CHECK(heads == args.shape.key_heads);
}

}  // namespace

std::size_t delta_scratch_bytes(std::int64_t tokens, const spec::LinearAttention& shape) {
  return static_cast<std::size_t>(tokens * shape.channels()) * sizeof(float);
}

DeltaHeadLayout::DeltaHeadLayout(const spec::LinearAttention& shape)
    : value_heads(shape.value_heads / shape.key_heads), strips(div_up(shape.value_dim, kStrip)) {
  const std::int64_t channels = 2 * shape.key_dim + value_heads * shape.value_dim;
  tail = div_up((shape.kernel - 1) * channels, kStrip) * kStrip;
  state = value_heads * strips * shape.key_dim * kStrip;
}

void gated_delta(OpContext& context, const GatedDeltaArgs& args) {
  const spec::LinearAttention& shape = args.shape;
  check_shape(shape);
  const std::int64_t tokens = args.out.shape[0];
  const std::int64_t sequences = args.rows.sequences();
  check_vector(args.rows.first_position, DType::kI32, sequences);
  check_vector(args.rows.begin, DType::kI32, sequences + 1);
  check_f32_rows(args.in, tokens, shape.channels() + shape.values());
  check_f32_rows(args.rates, tokens, 2 * shape.value_heads);
  check_matrix(args.conv);
  HEDDLE_CHECK(args.conv.dtype == DType::kF32 && args.conv.shape[0] == shape.channels() &&
               args.conv.shape[1] == shape.kernel);
  check_vector(args.fading, DType::kF32, shape.value_heads);
  check_vector(args.step_bias, DType::kF32, shape.value_heads);
  check_vector(args.norm, DType::kF32, shape.value_dim);
  check_floating(args.out.dtype);
  check_rows(args.out, args.out.dtype, tokens, shape.values());
  if (args.copy_behind.rank > 0) {
    check_matrix(args.copy_behind);
    HEDDLE_CHECK(args.copy_behind.dtype == DType::kI32 && args.copy_behind.shape[0] == sequences);
  }
  check_parts(args);
  if (tokens > 0) {
    context.kernels.gated_delta(context.stream, args);
  }
}

}  // namespace heddle::ops
