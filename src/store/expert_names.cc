#include "store/expert_names.h"

namespace heddle::store {

ExpertNames expert_names(const spec::ModelSpec& model) {
  if (model.architecture == spec::Architecture::kMixtral) {
    return {.router = "block_sparse_moe.gate.weight",
            .experts = "block_sparse_moe.experts",
            .gate = "w1",
            .up = "w3",
            .down = "w2"};
  }
  const bool beside = model.experts.beside;
  const bool gpt_oss = model.architecture == spec::Architecture::kGptOss;
  return {.router = beside    ? "router.proj.weight"
                    : gpt_oss ? "mlp.router.weight"
                              : "mlp.gate.weight",
          .experts = beside ? "experts" : "mlp.experts",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj"};
}

}  // namespace heddle::store
