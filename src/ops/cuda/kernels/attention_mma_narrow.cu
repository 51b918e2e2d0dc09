#include "ops/cuda/kernels/attention_merge.cuh"
#include "ops/cuda/kernels/attention_mma.cuh"

namespace heddle::ops::cuda {
namespace {

template <int kHeadDim>
__device__ __forceinline__ void attend_narrow(const AttentionParams& params) {
  using Shape = MmaNarrow<kHeadDim>;
  const AttentionTile tile = narrow_tile<Shape::kStep>(params);
  attend_mma<Shape>(params, tile);
  if (tile.rows > 0) {
    merge_narrow<Shape::kThreads>(params, tile);
  }
}

}  // namespace

#define HEDDLE_ATTENTION(head_dim)                                              \
  HEDDLE_KERNEL(heddle_attention_mma_narrow_##head_dim, AttentionParams, 128) { \
    attend_narrow<head_dim>(params);                                            \
  }

HEDDLE_ATTENTION(32)
HEDDLE_ATTENTION(64)
HEDDLE_ATTENTION(96)
HEDDLE_ATTENTION(128)
HEDDLE_ATTENTION(160)
HEDDLE_ATTENTION(192)
HEDDLE_ATTENTION(224)
HEDDLE_ATTENTION(256)

}  // namespace heddle::ops::cuda
