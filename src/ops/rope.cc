#include "ops/rope.h"

#include "ops/checks.h"

namespace heddle::ops {

void rope(OpContext& context, const RopeArgs& args) {
  const std::int64_t tokens = args.heads.shape[0];
  const std::int64_t head_dim = args.heads.shape[2];
  check_f32_heads(args.heads, tokens, args.heads.shape[1], head_dim);
  HEDDLE_CHECK(head_dim % 2 == 0);
  check_f32_rows(args.cos_sin, tokens, head_dim);
  if (tokens > 0) {
    context.kernels.rope(context.stream, args);
  }
}

}  // namespace heddle::ops
