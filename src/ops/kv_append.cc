#include "ops/kv_append.h"

#include "ops/checks.h"

namespace heddle::ops {

void kv_append(OpContext& context, const KvAppendArgs& args) {
  check_paged(args.rows, args.kv);
  const std::int64_t tokens = args.key.shape[0];
  check_f32_heads(args.key, tokens, args.kv.kv_heads, args.kv.head_dim);
  check_f32_heads(args.value, tokens, args.kv.kv_heads, args.kv.head_dim);
  if (tokens > 0) {
    context.kernels.kv_append(context.stream, args);
  }
}

}  // namespace heddle::ops
