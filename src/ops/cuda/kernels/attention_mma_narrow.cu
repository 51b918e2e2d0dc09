#include "ops/cuda/kernels/attention_merge.cuh"
#include "ops/cuda/kernels/attention_mma.cuh"

namespace heddle::ops::cuda {
namespace {

template <class Shape>
__device__ __forceinline__ void attend_narrow(const AttentionParams& params) {
  const AttentionTile tile = narrow_tile<Shape::kStep>(params);
  attend_mma<Shape>(params, tile);
  if (tile.rows > 0) {
    merge_narrow<Shape::kThreads>(params, tile);
  }
}

}  // namespace

#define HEDDLE_ATTENTION(head_dim)                                              \
  HEDDLE_KERNEL(heddle_attention_mma_narrow_##head_dim, AttentionParams, 128) { \
    attend_narrow<MmaNarrow<head_dim>>(params);                                 \
  }
/// Over codes.
#define HEDDLE_ATTENTION_CODES(head_dim)                                          \
  HEDDLE_KERNEL(heddle_attention_codes_narrow_##head_dim, AttentionParams, 128) { \
    attend_narrow<MmaNarrow<head_dim, true>>(params);                             \
  }

HEDDLE_ATTENTION(32)
HEDDLE_ATTENTION(64)
HEDDLE_ATTENTION(96)
HEDDLE_ATTENTION(128)
HEDDLE_ATTENTION(160)
HEDDLE_ATTENTION(192)
HEDDLE_ATTENTION(224)
HEDDLE_ATTENTION(256)

HEDDLE_ATTENTION_CODES(64)
HEDDLE_ATTENTION_CODES(96)
HEDDLE_ATTENTION_CODES(128)
HEDDLE_ATTENTION_CODES(256)

}  // namespace heddle::ops::cuda
