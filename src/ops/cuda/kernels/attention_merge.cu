#include "ops/cuda/kernels/attention.cuh"

namespace heddle::ops::cuda {
namespace {

/// One head of one token, by one warp. Lane z has the state of split z.
__device__ void merge(const AttentionParams& params, const AttentionRow& row, std::int32_t splits) {
  const auto z = static_cast<std::int32_t>(lane_index());
  float max = -INFINITY;
  float sum = 0.0F;
  if (z < splits) {
    const float* state = params.partial_state + 2 * partial_index(params, z, row);
    max = state[0];
    sum = state[1];
  }
  const float max_all = warp_max(max);
  const float weight = sum > 0.0F ? exp2_fast(max - max_all) : 0.0F;
  const float sum_all = warp_sum(sum * weight);
  AttentionTile whole{};
  whole.splits = 1;
  if (z == 0) {
    write_state(params, whole, row, max_all, sum_all);
  }
  for (std::int32_t first = 0; first < params.kv.head_dim; first += kWarpThreads) {
    const std::int32_t i = first + z;
    float weighted = 0.0F;
    for (std::int32_t split = 0; split < splits; ++split) {
      const float share = shuffle(weight, static_cast<unsigned>(split));
      if (share > 0.0F && i < params.kv.head_dim) {  // Others have left nothing.
        const std::int64_t at = partial_index(params, split, row) * params.kv.head_dim + i;
        weighted = fmaf(share, params.partial_out[at], weighted);
      }
    }
    if (i < params.kv.head_dim) {
      write_element(params, whole, row, i, weighted, sum_all);
    }
  }
}

}  // namespace

/// Block (token, y): the heads of that token by turns, a warp for each.
HEDDLE_KERNEL(heddle_attention_merge, AttentionParams, 128) {
  const std::int32_t sequence = sequence_of(params.batch, blockIdx.x);
  if (sequence == params.batch.sequences) {
    return;
  }
  const std::int32_t splits =
      rows_of(params, sequence) <= params.narrow_rows ? params.narrow_splits : params.wide_splits;
  const auto warps = static_cast<std::int32_t>(row_threads() / kWarpThreads);
  for (auto head = static_cast<std::int32_t>(row_rank() / kWarpThreads);
       splits > 1 && head < params.heads;
       head += warps) {
    merge(params, {.token = blockIdx.x, .head = head}, splits);
  }
}

}  // namespace heddle::ops::cuda
