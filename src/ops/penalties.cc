#include "ops/penalties.h"

#include "ops/checks.h"

namespace heddle::ops {

void penalties(OpContext& context, const PenaltiesArgs& args) {
  const std::int64_t rows = args.logits.shape[0];
  check_f32_rows(args.logits, rows, args.logits.shape[1]);
  if (rows > 0) {
    HEDDLE_CHECK(args.rows != nullptr && args.uses != nullptr);
    context.kernels.penalties(context.stream, args);
  }
}

}  // namespace heddle::ops
