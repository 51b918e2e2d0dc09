#include "ops/rescale.h"

#include "ops/checks.h"

namespace heddle::ops {

void rescale(OpContext& context, const RescaleArgs& args) {
  const std::int64_t tokens = args.x.shape[0];
  check_floating(args.out.dtype);
  check_rows(args.out, args.out.dtype, tokens, args.x.shape[1]);
  check_f32_rows(args.x, tokens, args.x.shape[1]);
  HEDDLE_CHECK(args.cap >= 0);
  if (args.by.present()) {
    check_vector(args.by, DType::kF32, 1);
  }
  if (tokens > 0) {
    context.kernels.rescale(context.stream, args);
  }
}

}  // namespace heddle::ops
