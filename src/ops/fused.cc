#include "ops/fused.h"

#include "ops/checks.h"
#include "ops/silu_mul.h"

namespace heddle::ops {

void linear_norm(OpContext& context, const LinearNormArgs& args) {
  HEDDLE_CHECK(args.norm.x.data == args.linear.out.data);
  check_linear(context, args.linear);
  check_rms_norm(args.norm);
  if (args.linear.x.shape[0] == 0) {
    return;
  }
  if (context.kernels.linear_norm == nullptr ||
      !context.kernels.linear_norm(context.stream, args)) {
    context.kernels.linear(context.stream, args.linear);
    context.kernels.rms_norm(context.stream, args.norm);
  }
}

void linear_silu(OpContext& context, const LinearSiluArgs& args) {
  HEDDLE_CHECK(!args.linear.residual.present());
  check_linear(context, args.linear);
  const SiluMulArgs silu{.gate_up = args.linear.out, .out = args.out};
  check_silu_mul(context, silu);
  if (args.linear.x.shape[0] == 0) {
    return;
  }
  if (context.kernels.linear_silu == nullptr ||
      !context.kernels.linear_silu(context.stream, args)) {
    context.kernels.linear(context.stream, args.linear);
    context.kernels.silu_mul(context.stream, silu);
  }
}

}  // namespace heddle::ops
