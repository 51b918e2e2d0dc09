#include "ops/experts.h"

#include <algorithm>

#include "ops/checks.h"
#include "spec/block_panels.h"

namespace heddle::ops {
namespace {

void check_choice(const ConstTensorRef& chosen,
                  const ConstTensorRef& weights,
                  std::int64_t tokens,
                  std::int64_t experts) {
  check_rows(chosen, DType::kI32, tokens, chosen.shape[1]);
  check_f32_rows(weights, tokens, chosen.shape[1]);
  HEDDLE_CHECK(chosen.shape[1] >= 1 && chosen.shape[1] <= experts);
}

/// A matrix with `rows` rows of each expert. Blocks lie in panels, of which no two experts have
/// parts.
void check_experts_matrix(const ConstTensorRef& matrix,
                          const ConstTensorRef& scale,
                          std::int64_t rows,
                          std::int64_t columns) {
  check_matrix(matrix);
  HEDDLE_CHECK(matrix.shape[0] % rows == 0 && matrix.shape[1] == columns);
  HEDDLE_CHECK(!spec::is_blocks(matrix.dtype) || rows % spec::kPanelRows == 0);
  const bool int8 = matrix.dtype == DType::kI8;
  HEDDLE_CHECK(int8 == scale.present());
  if (int8) {
    check_vector(scale, DType::kF32, matrix.shape[0]);
  } else if (!spec::is_blocks(matrix.dtype)) {
    check_floating(matrix.dtype);
  }
}

}  // namespace

std::size_t expert_scratch_bytes(std::int64_t tokens,
                                 std::int64_t active,
                                 std::int64_t experts,
                                 std::int64_t hidden,
                                 std::int64_t width,
                                 bool apart) {
  constexpr std::int64_t kPieces = 7;
  constexpr std::int64_t kTileBytes = 12;
  const std::int64_t slots = std::min(tokens, kExpertTokens) * active;
  const std::int64_t tiles = std::min(slots, experts + slots);
  const std::int64_t bytes = tiles * kTileBytes + 4 + 2 * slots * 4 + slots * width * 2 +
                             (apart ? slots * 2 * width * 4 : 0) + slots * hidden * 4;
  return static_cast<std::size_t>(bytes + kPieces * kExpertPiece);
}

void choose_experts(OpContext& context, const ChooseExpertsArgs& args) {
  const std::int64_t tokens = args.logits.shape[0];
  check_f32_rows(args.logits, tokens, args.logits.shape[1]);
  check_choice(args.chosen, args.weights, tokens, args.logits.shape[1]);
  if (args.scale.present()) {
    check_vector(args.scale, DType::kF32, args.logits.shape[1]);
  }
  if (tokens > 0) {
    context.kernels.choose_experts(context.stream, args);
  }
}

void experts(OpContext& context, const ExpertsArgs& args) {
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t hidden = args.x.shape[1];
  const std::int64_t width = args.gated.shape[1];
  const std::int64_t in = args.up.present() ? width : 2 * width;
  check_experts_matrix(args.gate_up, args.gate_up_scale, in, hidden);
  check_experts_matrix(args.down, args.down_scale, hidden, width);
  HEDDLE_CHECK(args.gate_up.shape[0] / in == args.down.shape[0] / hidden);
  check_choice(args.chosen, args.weights, tokens, args.down.shape[0] / hidden);
  const DType type = spec::compute_dtype(args.gate_up.dtype);
  HEDDLE_CHECK(spec::compute_dtype(args.down.dtype) == type);
  if (args.up.present()) {
    HEDDLE_CHECK(!args.gate_up_scale.present() && args.up.shape[0] == args.gate_up.shape[0]);
    HEDDLE_CHECK(spec::compute_dtype(args.up.dtype) == type);
    check_experts_matrix(args.up, {}, width, hidden);
  }
  HEDDLE_CHECK(!args.gelu || args.limit == 0.0F);
  check_rows(args.x, type, tokens, hidden);
  check_rows(args.rows, type, tokens, hidden);
  check_rows(args.gated, type, tokens, width);
  check_f32_rows(args.in, tokens, 2 * width);
  check_f32_rows(args.product, tokens, hidden);
  check_f32_rows(args.out, tokens, hidden);
  if (args.gate_up_bias.present()) {
    check_vector(args.gate_up_bias, DType::kF32, args.down.shape[0] / hidden * 2 * width);
  }
  if (args.down_bias.present()) {
    check_vector(args.down_bias, DType::kF32, args.down.shape[0]);
  }
  if (args.residual.present()) {
    check_f32_rows(args.residual, tokens, hidden);
  }
  if (tokens > 0) {
    context.kernels.experts(context.stream, args);
  }
}

void share_rows(OpContext& context, const ShareRowsArgs& args) {
  const std::int64_t tokens = args.rows.shape[0];
  check_f32_rows(args.rows, tokens, args.rows.shape[1]);
  check_f32_rows(args.gate, tokens, 1);
  if (tokens > 0) {
    context.kernels.share_rows(context.stream, args);
  }
}

}  // namespace heddle::ops
