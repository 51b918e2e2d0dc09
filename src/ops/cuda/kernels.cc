#include "ops/cuda/kernels.h"

namespace heddle::ops::cuda {

const KernelTable& cuda_kernels() {
  static constexpr KernelTable kTable{.all_gather = all_gather,
                                      .all_reduce = all_reduce,
                                      .attention = attention,
                                      .gather_rows = gather_rows,
                                      .kv_append = kv_append,
                                      .linear = linear,
                                      .log_probs = log_probs,
                                      .penalties = penalties,
                                      .rms_norm = rms_norm,
                                      .rope = rope,
                                      .sample = sample,
                                      .silu_mul = silu_mul,
                                      .wait = wait};
  return kTable;
}

}  // namespace heddle::ops::cuda
