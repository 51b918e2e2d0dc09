#include "ops/gelu_mul.h"

#include "ops/checks.h"

namespace heddle::ops {

void gelu_mul(OpContext& context, const GeluMulArgs& args) {
  const std::int64_t tokens = args.out.shape[0];
  check_floating(args.out.dtype);
  check_rows(args.out, args.out.dtype, tokens, args.out.shape[1]);
  check_f32_rows(args.gate_up, tokens, 2 * args.out.shape[1]);
  if (tokens > 0) {
    context.kernels.gelu_mul(context.stream, args);
  }
}

}  // namespace heddle::ops
