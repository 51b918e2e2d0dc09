#include "ops/attention.h"

#include "ops/checks.h"

namespace heddle::ops {

void attention(OpContext& context, const AttentionArgs& args) {
  check_paged(args.rows, args.kv);
  const std::int64_t tokens = args.query.shape[0];
  const std::int64_t heads = args.query.shape[1];
  check_f32_heads(args.query, tokens, heads, args.kv.head_dim);
  check_floating(args.out.dtype);
  check_heads(args.out, args.out.dtype, tokens, heads, args.kv.head_dim);
  HEDDLE_CHECK(args.kv.kv_heads > 0 && heads % args.kv.kv_heads == 0);
  HEDDLE_CHECK(args.query.stride[1] == args.kv.head_dim && args.out.stride[1] == args.kv.head_dim);
  HEDDLE_CHECK(args.kv.head_dim <= kAttentionHeadDimMax);
  HEDDLE_CHECK(args.window >= 0);
  if (args.lse.present()) {
    check_f32_rows(args.lse, tokens, heads);
  }
  if (tokens > 0) {
    context.kernels.attention(context.stream, args);
  }
}

}  // namespace heddle::ops
