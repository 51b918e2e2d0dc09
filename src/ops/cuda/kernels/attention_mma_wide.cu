#include "ops/cuda/kernels/attention_mma.cuh"

namespace heddle::ops::cuda {
namespace {

template <class Shape>
__device__ __forceinline__ void attend_wide(const AttentionParams& params) {
  attend_mma<Shape>(params, wide_tile<Shape::kRows, Shape::kStep>(params));
}

}  // namespace

/// `blocks_min`: as many as have room in a multiprocessor's registers.
#define HEDDLE_ATTENTION(head_dim, blocks_min)                                                   \
  HEDDLE_KERNEL_BLOCKS(heddle_attention_mma_wide_##head_dim, AttentionParams, 128, blocks_min) { \
    attend_wide<MmaWide<head_dim>>(params);                                                      \
  }
/// Over codes.
#define HEDDLE_ATTENTION_CODES(head_dim, blocks_min)                                               \
  HEDDLE_KERNEL_BLOCKS(heddle_attention_codes_wide_##head_dim, AttentionParams, 128, blocks_min) { \
    attend_wide<MmaWide<head_dim, true>>(params);                                                  \
  }

HEDDLE_ATTENTION(32, 4)
HEDDLE_ATTENTION(64, 3)
HEDDLE_ATTENTION(96, 3)
HEDDLE_ATTENTION(128, 2)
HEDDLE_ATTENTION(160, 2)
HEDDLE_ATTENTION(192, 2)
HEDDLE_ATTENTION(224, 2)
HEDDLE_ATTENTION(256, 2)

HEDDLE_ATTENTION_CODES(64, 3)
HEDDLE_ATTENTION_CODES(96, 3)
HEDDLE_ATTENTION_CODES(128, 2)
HEDDLE_ATTENTION_CODES(256, 2)

}  // namespace heddle::ops::cuda
