#include "ops/cuda/kernels.h"

namespace heddle::ops::cuda {

const KernelTable& cuda_kernels() {
  static constexpr KernelTable kTable{.attention = attention,
                                      .gather_rows = gather_rows,
                                      .kv_append = kv_append,
                                      .rms_norm = rms_norm,
                                      .rope = rope,
                                      .silu_mul = silu_mul,
                                      .wait = wait};
  return kTable;
}

}  // namespace heddle::ops::cuda
