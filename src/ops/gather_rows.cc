#include "ops/gather_rows.h"

#include "ops/checks.h"

namespace heddle::ops {

void gather_rows(OpContext& context, const GatherRowsArgs& args) {
  check_matrix(args.table);
  if (!spec::is_blocks(args.table.dtype)) {
    check_floating(args.table.dtype);
  }
  const std::int64_t n = args.rows.shape[0];
  check_vector(args.rows, DType::kI32, n);
  check_f32_rows(args.out, n, args.table.shape[1]);
  if (n > 0) {
    context.kernels.gather_rows(context.stream, args);
  }
}

}  // namespace heddle::ops
