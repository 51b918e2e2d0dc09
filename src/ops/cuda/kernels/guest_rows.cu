#include "ops/cuda/kernels/guest_params.h"
#include "ops/cuda/kernels/intrinsics.cuh"

namespace heddle::ops::cuda {

HEDDLE_KERNEL(heddle_guest_post, GuestPostParams, 256) {
  const float* query =
      params.query + static_cast<std::int64_t>(params.begin[blockIdx.x]) * params.query_stride;
  float* out = params.out + blockIdx.x * params.width;
  for (std::int64_t i = threadIdx.x; i < params.width; i += blockDim.x) {
    out[i] = query[i];
  }
}

HEDDLE_KERNEL(heddle_guest_take, GuestTakeParams, 256) {
  __shared__ bool answered;
  if (threadIdx.x == 0) {  // Once for the row: an answer may come late, and then counts or not.
    answered = *static_cast<const volatile std::uint32_t*>(params.served) == params.ticket;
    __threadfence_system();  // Before the state is read.
  }
  __syncthreads();
  const std::int64_t width = params.head_dim + 2;
  const std::int64_t all = params.heads * width;
  const float* state = params.state + blockIdx.x * all;
  float* out = params.out + static_cast<std::int64_t>(params.begin[blockIdx.x]) * params.out_stride;
  for (std::int64_t i = threadIdx.x; answered && i < all; i += blockDim.x) {
    out[i] = state[i];
  }
  for (std::int64_t head = threadIdx.x; !answered && head < params.heads; head += blockDim.x) {
    out[head * width + params.head_dim + 1] = kMissing;
  }
}

}  // namespace heddle::ops::cuda
