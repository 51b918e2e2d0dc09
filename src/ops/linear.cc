#include "ops/linear.h"

#include "ops/checks.h"

namespace heddle::ops {

void check_linear(const OpContext& context, const LinearArgs& args) {
  check_matrix(args.weight);
  const bool int8 = args.weight.dtype == DType::kI8;
  HEDDLE_CHECK(int8 == args.scale.present());
  if (!int8 && !spec::is_blocks(args.weight.dtype)) {
    check_floating(args.weight.dtype);
  }
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t outputs = args.weight.shape[0];
  check_rows(args.x, spec::compute_dtype(args.weight.dtype), tokens, args.weight.shape[1]);
  check_rows(args.out, args.out.dtype, tokens, outputs);
  check_projected(context, args.out.dtype, args.x.dtype);
  HEDDLE_CHECK(args.out.dtype == DType::kF32 || !args.residual.present());
  if (int8) {
    check_vector(args.scale, DType::kF32, outputs);
  }
  if (args.bias.present()) {
    check_vector(args.bias, DType::kF32, outputs);
  }
  if (args.residual.present()) {
    check_f32_rows(args.residual, tokens, outputs);
  }
}

void linear(OpContext& context, const LinearArgs& args) {
  check_linear(context, args);
  if (args.x.shape[0] > 0) {
    context.kernels.linear(context.stream, args);
  }
}

}  // namespace heddle::ops
