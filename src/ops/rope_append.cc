#include "ops/rope_append.h"

#include "ops/checks.h"

namespace heddle::ops {

void rope_append(OpContext& context, const RopeAppendArgs& args) {
  check_paged(args.rows, args.kv);
  const std::int64_t tokens = args.key.shape[0];
  const std::int64_t head_dim = args.kv.head_dim;
  HEDDLE_CHECK(head_dim % 2 == 0);
  check_f32_rows(args.cos_sin, tokens, head_dim);
  check_f32_heads(args.query, tokens, args.query.shape[1], head_dim);
  check_f32_heads(args.key, tokens, args.kv.kv_heads, head_dim);
  check_f32_heads(args.value, tokens, args.kv.kv_heads, head_dim);
  if (tokens > 0) {
    context.kernels.rope_append(context.stream, args);
  }
}

}  // namespace heddle::ops
