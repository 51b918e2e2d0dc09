#include "ops/cuda/kernels/gated_rows.cuh"
#include "ops/cuda/kernels/silu.cuh"
#include "ops/cuda/kernels/silu_mul_params.h"

namespace heddle::ops::cuda {

HEDDLE_KERNEL(heddle_silu_mul, SiluMulParams, 256) {
  gated_rows(params, [&](float gate, float up) {
    return params.limit > 0.0F ? silu_mul(gate, up, params.limit, params.gain) : silu_mul(gate, up);
  });
}

}  // namespace heddle::ops::cuda
