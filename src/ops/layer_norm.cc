#include "ops/layer_norm.h"

#include "ops/checks.h"

namespace heddle::ops {

void layer_norm(OpContext& context, const LayerNormArgs& args) {
  const std::int64_t tokens = args.out.shape[0];
  const std::int64_t columns = args.out.shape[1];
  check_f32_rows(args.x, tokens, columns);
  check_f32_rows(args.out, tokens, columns);
  check_floating(args.copy.dtype);
  check_rows(args.copy, args.copy.dtype, tokens, columns);
  check_vector(args.weight, DType::kF32, columns);
  check_vector(args.bias, DType::kF32, columns);
  if (tokens > 0) {
    context.kernels.layer_norm(context.stream, args);
  }
}

}  // namespace heddle::ops
