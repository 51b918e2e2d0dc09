#include "ops/cuda/kernels/attention_merge.cuh"

namespace heddle::ops::cuda {

/// Block (token, y): the heads of that token by turns, a warp for each.
HEDDLE_KERNEL(heddle_attention_merge, AttentionParams, 128) {
  const std::int32_t sequence = sequence_of(params.batch, blockIdx.x);
  if (sequence == params.batch.sequences) {
    return;
  }
  const bool narrow = rows_of(params, sequence) <= params.narrow_rows;
  if (narrow && params.counters != nullptr) {
    return;  // It was done.
  }
  const std::int32_t splits = narrow ? params.narrow_splits : params.wide_splits;
  const auto warps = static_cast<std::int32_t>(row_threads() / kWarpThreads);
  for (auto head = static_cast<std::int32_t>(row_rank() / kWarpThreads);
       are_merged(params, splits) && head < params.heads;
       head += warps) {
    if (is_wanted(params, blockIdx.x, head)) {
      merge(params, {.token = blockIdx.x, .head = head}, sequence, splits);
    }
  }
}

}  // namespace heddle::ops::cuda
