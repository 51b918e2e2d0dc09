#include "ops/gelu_mul.h"

#include "ops/checks.h"

namespace heddle::ops {

void gelu_mul(OpContext& context, const GeluMulArgs& args) {
  const std::int64_t tokens = args.out.shape[0];
  check_floating(args.out.dtype);
  check_rows(args.out, args.out.dtype, tokens, args.out.shape[1]);
  check_rows(args.gate_up, args.gate_up.dtype, tokens, 2 * args.out.shape[1]);
  check_projected(context, args.gate_up.dtype, args.out.dtype);
  if (tokens > 0) {
    context.kernels.gelu_mul(context.stream, args);
  }
}

}  // namespace heddle::ops
