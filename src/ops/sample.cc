#include "ops/sample.h"

#include "ops/checks.h"

namespace heddle::ops {

void sample(OpContext& context, const SampleArgs& args) {
  const std::int64_t rows = args.logits.shape[0];
  check_f32_rows(args.logits, rows, args.logits.shape[1]);
  HEDDLE_CHECK(args.logits.shape[1] > 0);
  check_vector(args.tokens, DType::kI32, rows);
  if (rows > 0) {
    HEDDLE_CHECK(args.rows != nullptr);
    context.kernels.sample(context.stream, args);
  }
}

}  // namespace heddle::ops
