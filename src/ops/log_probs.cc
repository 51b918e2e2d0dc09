#include "ops/log_probs.h"

#include "ops/checks.h"

namespace heddle::ops {

void log_probs(OpContext& context, const LogProbsArgs& args) {
  const std::int64_t rows = args.logits.shape[0];
  check_f32_rows(args.logits, rows, args.logits.shape[1]);
  check_vector(args.choices, DType::kI32, args.choices.shape[0]);
  if (rows > 0) {
    HEDDLE_CHECK(args.rows != nullptr && args.tokens != nullptr && args.log_probs != nullptr);
    context.kernels.log_probs(context.stream, args);
  }
}

}  // namespace heddle::ops
