#include "ops/sigmoid_mul.h"

#include "ops/checks.h"

namespace heddle::ops {

void sigmoid_mul(OpContext& context, const SigmoidMulArgs& args) {
  const std::int64_t tokens = args.rows.shape[0];
  check_floating(args.rows.dtype);
  check_rows(args.rows, args.rows.dtype, tokens, args.rows.shape[1]);
  check_rows(args.gate, args.gate.dtype, tokens, args.rows.shape[1]);
  check_projected(context, args.gate.dtype, args.rows.dtype);
  if (tokens > 0) {
    context.kernels.sigmoid_mul(context.stream, args);
  }
}

}  // namespace heddle::ops
