#include "ops/cuda/kernels.h"

#include "ops/cuda/survey.h"

namespace heddle::ops::cuda {

const KernelTable& cuda_kernels() {
  static constexpr KernelTable kTable{.add_low_rank_tiles = add_low_rank_tiles,
                                      .add_norm = add_norm,
                                      .all_gather = all_gather,
                                      .all_reduce = all_reduce,
                                      .attention = attention,
                                      .attention_turns = attention_turns,
                                      .await_guest_attention = await_guest_attention,
                                      .begin_survey = begin_survey,
                                      .choose_experts = choose_experts,
                                      .end_survey = end_survey,
                                      .experts = experts,
                                      .gated_delta = gated_delta,
                                      .gather_rows = gather_rows,
                                      .gelu_mul = gelu_mul,
                                      .linear = linear,
                                      .linear_norm = linear_norm,
                                      .linear_silu = linear_silu,
                                      .log_probs = log_probs,
                                      .post_guest_attention = post_guest_attention,
                                      .penalties = penalties,
                                      .rescale = rescale,
                                      .rms_norm = rms_norm,
                                      .rope_append = rope_append,
                                      .sample = sample,
                                      .send = send,
                                      .share_rows = share_rows,
                                      .sigmoid_mul = sigmoid_mul,
                                      .silu_mul = silu_mul,
                                      .wait = wait,
                                      .rope_normalises = true,
                                      .narrow_from = kNarrowFrom};
  return kTable;
}

}  // namespace heddle::ops::cuda
