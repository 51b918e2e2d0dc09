#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {

const KernelTable& cpu_kernels() {
  static constexpr KernelTable kTable{.add_low_rank = add_low_rank,
                                      .add_norm = add_norm,
                                      .all_gather = all_gather,
                                      .all_reduce = all_reduce,
                                      .attention = attention,
                                      .await_guest_attention = await_guest_attention,
                                      .choose_experts = choose_experts,
                                      .experts = experts,
                                      .gated_delta = gated_delta,
                                      .gather_rows = gather_rows,
                                      .gelu = gelu,
                                      .gelu_mul = gelu_mul,
                                      .layer_norm = layer_norm,
                                      .linear = linear,
                                      .log_probs = log_probs,
                                      .post_guest_attention = post_guest_attention,
                                      .penalties = penalties,
                                      .rescale = rescale,
                                      .rms_norm = rms_norm,
                                      .rope_append = rope_append,
                                      .sample = sample,
                                      .share_rows = share_rows,
                                      .sigmoid_mul = sigmoid_mul,
                                      .silu_mul = silu_mul,
                                      .wait = wait};
  return kTable;
}

}  // namespace heddle::ops::cpu
