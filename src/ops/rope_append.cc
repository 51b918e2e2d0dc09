#include "ops/rope_append.h"

#include "ops/attention.h"
#include "ops/checks.h"

namespace heddle::ops {

void rope_append(OpContext& context, const RopeAppendArgs& args) {
  check_paged(args.rows, args.kv);
  const std::int64_t tokens = args.key.shape[0];
  const std::int64_t head_dim = args.kv.head_dim;
  const std::int64_t rotary = args.cos_sin.shape[1];
  HEDDLE_CHECK(head_dim % 2 == 0 && rotary % 2 == 0);
  HEDDLE_CHECK(!args.kv.scaled() || head_dim <= kAttentionHeadDimMax);
  HEDDLE_CHECK(rotary <= head_dim);
  check_f32_rows(args.cos_sin, tokens, rotary);
  const DType dtype = args.key.dtype;
  check_projected_kv(context, dtype, args.kv);
  if (args.query.present()) {
    check_heads(args.query, dtype, tokens, args.query.shape[1], head_dim);
    HEDDLE_CHECK(args.query_norm.present() == args.key_norm.present());
  } else {
    HEDDLE_CHECK(context.kernels.attention_turns != nullptr && !args.query_norm.present());
  }
  check_heads(args.key, dtype, tokens, args.kv.kv_heads, head_dim);
  check_heads(args.value, dtype, tokens, args.kv.kv_heads, head_dim);
  for (const ConstTensorRef& norm : {args.query_norm, args.key_norm}) {
    if (norm.present()) {
      HEDDLE_CHECK(context.kernels.rope_normalises);
      check_vector(norm, DType::kF32, head_dim);
    }
  }
  if (tokens > 0) {
    context.kernels.rope_append(context.stream, args);
  }
}

}  // namespace heddle::ops
