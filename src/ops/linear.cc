#include "ops/linear.h"

#include "ops/checks.h"

namespace heddle::ops {

void linear(OpContext& context, const LinearArgs& args) {
  check_weight(args.weight);
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t outputs = args.weight.shape[0];
  check_rows(args.x, args.weight.dtype, tokens, args.weight.shape[1]);
  check_f32_rows(args.out, tokens, outputs);
  if (args.bias.present()) {
    check_vector(args.bias, DType::kF32, outputs);
  }
  if (args.residual.present()) {
    check_f32_rows(args.residual, tokens, outputs);
  }
  if (tokens > 0) {
    context.kernels.linear(context.stream, args);
  }
}

}  // namespace heddle::ops
