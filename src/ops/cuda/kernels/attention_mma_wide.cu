#include "ops/cuda/kernels/attention_mma.cuh"

namespace heddle::ops::cuda {
namespace {

template <int kHeadDim>
__device__ __forceinline__ void attend_wide(const AttentionParams& params) {
  using Shape = MmaWide<kHeadDim>;
  attend_mma<Shape>(params, wide_tile<Shape::kRows, Shape::kStep>(params));
}

}  // namespace

#define HEDDLE_ATTENTION(head_dim)                                            \
  HEDDLE_KERNEL(heddle_attention_mma_wide_##head_dim, AttentionParams, 128) { \
    attend_wide<head_dim>(params);                                            \
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
