#include "ops/add_norm.h"

#include "ops/checks.h"

namespace heddle::ops {

void add_norm(OpContext& context, const AddNormArgs& args) {
  const std::int64_t tokens = args.x.shape[0];
  check_f32_rows(args.x, tokens, args.x.shape[1]);
  check_f32_rows(args.sum, tokens, args.x.shape[1]);
  if (args.weight.present()) {
    check_vector(args.weight, DType::kF32, args.x.shape[1]);
  }
  if (args.next_weight.present()) {
    HEDDLE_CHECK(args.next.present());
    check_vector(args.next_weight, DType::kF32, args.x.shape[1]);
  }
  if (args.next.present()) {
    check_floating(args.next.dtype);
    check_rows(args.next, args.next.dtype, tokens, args.x.shape[1]);
  }
  if (tokens > 0) {
    context.kernels.add_norm(context.stream, args);
  }
}

}  // namespace heddle::ops
