#include "ops/rms_norm.h"

#include "ops/checks.h"

namespace heddle::ops {

void check_rms_norm(const RmsNormArgs& args) {
  HEDDLE_CHECK(args.x.rank == 2 || args.x.rank == 3);
  HEDDLE_CHECK(args.x.rank == args.out.rank && args.x.shape == args.out.shape);
  const auto last = static_cast<std::size_t>(args.x.rank - 1);
  HEDDLE_CHECK(args.x.dtype == DType::kF32 && args.x.stride[last] == 1);
  check_floating(args.out.dtype);
  HEDDLE_CHECK(args.out.stride[last] == 1);
  if (args.weight.present()) {
    check_vector(args.weight, DType::kF32, args.x.shape[last]);
  }
}

void rms_norm(OpContext& context, const RmsNormArgs& args) {
  check_rms_norm(args);
  if (args.x.shape[0] > 0) {
    context.kernels.rms_norm(context.stream, args);
  }
}

}  // namespace heddle::ops
