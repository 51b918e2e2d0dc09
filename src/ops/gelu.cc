#include "ops/gelu.h"

#include "ops/checks.h"

namespace heddle::ops {

void gelu(OpContext& context, const GeluArgs& args) {
  const std::int64_t tokens = args.out.shape[0];
  check_floating(args.out.dtype);
  check_rows(args.out, args.out.dtype, tokens, args.out.shape[1]);
  check_f32_rows(args.x, tokens, args.out.shape[1]);
  if (tokens > 0) {
    context.kernels.gelu(context.stream, args);
  }
}

}  // namespace heddle::ops
