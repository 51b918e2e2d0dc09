#include "ops/low_rank_tiles.h"

#include "base/div_up.h"
#include "ops/checks.h"

namespace heddle::ops {

void add_low_rank_tiles(OpContext& context, const AddLowRankTilesArgs& args) {
  const std::int64_t tokens = args.x.shape[0];
  check_floating(args.x.dtype);
  check_rows(args.x, args.x.dtype, tokens, args.x.shape[1]);
  check_projected(context, args.out.dtype, args.x.dtype);
  check_rows(args.out, args.out.dtype, tokens, args.out.shape[1]);
  HEDDLE_CHECK(args.pairs > 0 && args.pairs <= kLowRankPairs && args.rank > 0 && args.entry >= 0);
  if (args.count > 0) {
    context.kernels.add_low_rank_tiles(context.stream, args);
  }
}

std::size_t low_rank_tiles_bytes(std::int64_t tokens, std::int64_t rank, DType dtype) {
  const std::int64_t columns = div_up(rank, kLowRankStep) * kLowRankStep * kLowRankPairs;
  return static_cast<std::size_t>(tokens * columns * dtype_size(dtype));
}

}  // namespace heddle::ops
