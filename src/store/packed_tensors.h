#pragma once

#include "base/result.h"
#include "spec/quantisation.h"
#include "store/tensor_set.h"

namespace heddle::store {

/// Joins the tensors of each packed matrix (packed_matrix.h) to the one that they stand for: of
/// `q_proj.qweight`, `q_proj.scales` and so on `q_proj.weight` is left, which has the matrix's
/// shape and rows_type(). Matrices that are plain stay. What belongs to packed ones and has no
/// meaning here (scales of activations and of KV, shapes) goes.
///
/// kCorrupt, naming tensor, file and what would be right, where one is missing, or has another
/// type or shape than the others or `how` say.
Result<void> join_packed(TensorSet& tensors, const spec::Quantisation& how);

}  // namespace heddle::store
