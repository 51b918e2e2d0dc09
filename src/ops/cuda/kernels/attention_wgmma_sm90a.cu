#include "ops/cuda/kernels/attention_wgmma.cuh"

namespace heddle::ops::cuda {
namespace {

template <int kHeadDim>
__device__ __forceinline__ void attend_wide(const AttentionParams& params) {
  if constexpr (kHasWgmma) {
    using Shape = WgmmaWide<kHeadDim>;
    attend_wgmma<Shape>(params, wide_tile<Shape::kRows, Shape::kStep>(params));
  } else {
    lacks_products();
  }
}

}  // namespace

HEDDLE_KERNEL(heddle_attention_wgmma_64, AttentionParams, 256) {
  attend_wide<64>(params);
}
HEDDLE_KERNEL(heddle_attention_wgmma_128, AttentionParams, 256) {
  attend_wide<128>(params);
}
HEDDLE_KERNEL(heddle_attention_wgmma_256, AttentionParams, 256) {
  attend_wide<256>(params);
}

}  // namespace heddle::ops::cuda
