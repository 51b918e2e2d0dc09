#include "ops/guest_attention.h"

#include "ops/checks.h"
#include "ops/cpu/kernels.h"

namespace heddle::ops {
namespace {

/// CHECK-fails unless it is about rows that a host can take.
void check_guests(const GuestAttentionArgs& args) {
  const AttentionArgs& attention = args.attention;
  HEDDLE_CHECK(attention.window == 0);
  HEDDLE_CHECK(attention.parts.end.present() && attention.parts.left.present());
  HEDDLE_CHECK(!attention.parts.begin.present());
  check_vector(attention.parts.end, DType::kI32, attention.rows.sequences());
}

}  // namespace

void post_guest_attention(OpContext& context, const GuestAttentionArgs& args) {
  check_guests(args);
  HEDDLE_CHECK(context.kernels.post_guest_attention != nullptr);
  context.kernels.post_guest_attention(context.stream, args);
}

void await_guest_attention(OpContext& context, const GuestAttentionArgs& args) {
  check_guests(args);
  HEDDLE_CHECK(context.kernels.await_guest_attention != nullptr);
  context.kernels.await_guest_attention(context.stream, args);
}

void attention_here(const AttentionArgs& args) {
  cpu::attention_here(args);
}

}  // namespace heddle::ops
