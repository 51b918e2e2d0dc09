#include "ops/attention.h"

#include "ops/checks.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops {
namespace {

/// CHECK-fails unless the parts fit the rest.
void check_parts(const AttentionArgs& args) {
  const AttentionParts& parts = args.parts;
  HEDDLE_CHECK(args.window == 0 || !parts.present());
  HEDDLE_CHECK(parts.begin.present() == parts.resumed.present());
  for (const ConstTensorRef& bound : {parts.begin, parts.end}) {
    if (bound.present()) {
      check_vector(bound, DType::kI32, args.rows.sequences());
    }
  }
  for (const ConstTensorRef& state : {parts.resumed, ConstTensorRef(parts.left)}) {
    if (state.present()) {
      check_f32_heads(state, args.query.shape[0], args.query.shape[1], args.kv.head_dim + 2);
      HEDDLE_CHECK(state.stride[1] == args.kv.head_dim + 2);
    }
  }
}

/// As of most instruction sets, so that guests come in like pieces.
constexpr std::int64_t kCudaBorder = 16;

}  // namespace

std::int64_t attention_border(device::Kind kind) {
  return kind == device::Kind::kCuda ? kCudaBorder : cpu::simd_kernels().attention_step;
}

bool attention_turns(const OpContext& context, const AttentionArgs& args) {
  return context.kernels.attention_turns != nullptr && context.kernels.attention_turns(args);
}

void attention(OpContext& context, const AttentionArgs& args) {
  check_paged(args.rows, args.kv);
  const std::int64_t tokens = args.query.shape[0];
  const std::int64_t heads = args.query.shape[1];
  check_heads(args.query, args.query.dtype, tokens, heads, args.kv.head_dim);
  check_projected_kv(context, args.query.dtype, args.kv);
  check_parts(args);
  if (args.turn.cos_sin.present()) {
    HEDDLE_CHECK(attention_turns(context, args));
    check_f32_rows(args.turn.cos_sin, tokens, args.kv.head_dim);
    if (args.turn.norm.present()) {
      check_vector(args.turn.norm, DType::kF32, args.kv.head_dim);
    }
  }
  if (!args.parts.left.present()) {
    check_floating(args.out.dtype);
    check_heads(args.out, args.out.dtype, tokens, heads, args.kv.head_dim);
    HEDDLE_CHECK(args.out.stride[1] == args.kv.head_dim);
  }
  HEDDLE_CHECK(args.kv.kv_heads > 0 && heads % args.kv.kv_heads == 0);
  HEDDLE_CHECK(args.query.stride[1] == args.kv.head_dim);
  HEDDLE_CHECK(args.kv.head_dim <= kAttentionHeadDimMax);
  HEDDLE_CHECK(args.window >= 0 && args.soft_cap >= 0);
  HEDDLE_CHECK(args.causal || (args.window == 0 && !args.parts.present()));
  if (args.sinks.present()) {
    check_vector(args.sinks, DType::kF32, heads);
  }
  if (args.lse.present()) {
    check_f32_rows(args.lse, tokens, heads);
  }
  if (tokens > 0) {
    context.kernels.attention(context.stream, args);
  }
}

}  // namespace heddle::ops
