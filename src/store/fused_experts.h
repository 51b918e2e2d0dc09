#pragma once

#include "store/tensor_set.h"

namespace heddle::store {

/// Replaces the tensors of a model's layers that have a matrix of all experts, one behind the other
/// (`mlp.experts.gate_up_proj` [experts, 2 width, hidden], of each gates and then ups, and
/// `mlp.experts.down_proj` [experts, hidden, width], as Qwen3.5's files have them), by those that
/// other files have for each expert: `mlp.experts.3.gate_proj.weight` and so on. Likewise where
/// they are beside the MLP, in `experts` (Gemma 4). Tensors of another shape are left alone.
void split_experts(TensorSet& tensors);

}  // namespace heddle::store
