#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/send_params.h"

namespace heddle::ops::cuda {
namespace {

template <class Item>
__device__ void copy_items(const SendParams& params) {
  const auto* source = reinterpret_cast<const Item*>(params.source);
  auto* target = reinterpret_cast<Item*>(params.target);
  for (std::int64_t i = row_rank(); i < params.items; i += row_threads()) {
    target[i] = source[i];
  }
}

}  // namespace

HEDDLE_KERNEL(heddle_send, SendParams, 256) {
  if (params.quads != 0) {
    copy_items<uint4>(params);
  } else {
    copy_items<std::uint32_t>(params);
  }
}

}  // namespace heddle::ops::cuda
