#include "ops/add_low_rank.h"

#include <utility>

#include "ops/checks.h"

namespace heddle::ops {

void add_low_rank(OpContext& context, AddLowRankArgs args) {
  const std::int64_t tokens = args.x.shape[0];
  check_floating(args.x.dtype);
  check_rows(args.x, args.x.dtype, tokens, args.x.shape[1]);
  check_f32_rows(args.out, tokens, args.out.shape[1]);
  std::int64_t end = 0;
  for (const LowRankRows& rows : args.rows) {
    HEDDLE_CHECK(rows.first >= end && rows.rows > 0 && rows.rows <= args.most_tokens);
    end = rows.first + rows.rows;
    for (const LowRankPair& pair : rows.pairs) {
      check_matrix(pair.a);
      check_matrix(pair.b);
      HEDDLE_CHECK(pair.a.dtype == args.x.dtype && pair.b.dtype == args.x.dtype);
      HEDDLE_CHECK(pair.a.shape[1] == args.x.shape[1] && pair.a.shape[0] == pair.b.shape[1]);
      HEDDLE_CHECK(pair.first >= 0 && pair.first + pair.b.shape[0] <= args.out.shape[1]);
    }
  }
  HEDDLE_CHECK(end <= tokens);
  if (!args.rows.empty()) {
    context.kernels.add_low_rank(context.stream, std::move(args));
  }
}

std::int64_t low_rank_bytes(std::int64_t rank, std::int64_t pairs) {
  // A x as it is summed and as B takes it, and packed: whole steps, and a line behind each token.
  constexpr std::int64_t kStep = 32;
  constexpr std::int64_t kLine = 64;
  constexpr auto kFloat = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t packed = (rank + kStep - 1) / kStep * kStep * kFloat + kLine;
  return pairs * (2 * rank * kFloat + packed);
}

}  // namespace heddle::ops
