#include "ops/cuda/kernels/attention_mma.cuh"

namespace heddle::ops::cuda {
namespace {

template <int kHeadDim>
__device__ __forceinline__ void attend_broad(const AttentionParams& params) {
  using Shape = MmaBroad<kHeadDim>;
  attend_mma<Shape>(params, wide_tile<Shape::kRows, Shape::kStep>(params));
}

}  // namespace

HEDDLE_KERNEL(heddle_attention_mma_broad_64, AttentionParams, 256) {
  attend_broad<64>(params);
}
HEDDLE_KERNEL(heddle_attention_mma_broad_128, AttentionParams, 256) {
  attend_broad<128>(params);
}

}  // namespace heddle::ops::cuda
