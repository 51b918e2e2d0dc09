#pragma once

#include "store/tensor_set.h"

namespace heddle::store {

/// Replaces the tensors that gpt-oss' files have of all experts of a layer by those that other
/// files have for each (`mlp.experts.3.gate_proj.weight`, `mlp.experts.3.gate_proj.bias` and so
/// on), as packed matrices (packed_matrix.h). In `mlp.experts.`
///
///     gate_up_proj         [experts, hidden, 2 width]  gates and ups by turns; inputs by outputs
///     gate_up_proj_bias    [experts, 2 width]
///     gate_up_proj_blocks  [experts, 2 width, hidden / 32, 16] of MXFP4, in place of the first,
///     gate_up_proj_scales  [experts, 2 width, hidden / 32]     with this
///
/// and likewise down_proj, whose rows are all of one kind. Tensors of another shape or type are
/// left alone.
void split_turned_experts(TensorSet& tensors);

}  // namespace heddle::store
