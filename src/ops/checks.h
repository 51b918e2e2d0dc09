#pragma once

#include "base/check.h"
#include "ops/context.h"
#include "ops/paged_kv.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

/// CHECK-fails unless it is a type that operations compute on.
inline void check_floating(DType dtype) {
  HEDDLE_CHECK(dtype == DType::kF32 || dtype == DType::kBf16);
}

/// CHECK-fails unless projections of a model that computes in `model` may be of type `dtype`.
inline void check_projected(const OpContext& context, DType dtype, DType model) {
  HEDDLE_CHECK(dtype == DType::kF32 ||
               (dtype == DType::kBf16 && model == DType::kBf16 && context.kernels.narrow_from > 0));
}

/// CHECK-fails unless `tensor` is [rows, columns] of that type with adjacent columns.
inline void check_rows(const ConstTensorRef& tensor,
                       DType dtype,
                       std::int64_t rows,
                       std::int64_t columns) {
  HEDDLE_CHECK(tensor.rank == 2 && tensor.dtype == dtype);
  HEDDLE_CHECK(tensor.shape[0] == rows && tensor.shape[1] == columns);
  HEDDLE_CHECK(tensor.stride[1] == 1 && tensor.stride[0] >= columns);
}
inline void check_f32_rows(const ConstTensorRef& tensor, std::int64_t rows, std::int64_t columns) {
  check_rows(tensor, DType::kF32, rows, columns);
}

/// CHECK-fails unless `tensor` is [tokens, heads, head_dim] of that type with adjacent elements.
inline void check_heads(const ConstTensorRef& tensor,
                        DType dtype,
                        std::int64_t tokens,
                        std::int64_t heads,
                        std::int64_t head_dim) {
  HEDDLE_CHECK(tensor.rank == 3 && tensor.dtype == dtype);
  HEDDLE_CHECK(tensor.shape[0] == tokens && tensor.shape[1] == heads);
  HEDDLE_CHECK(tensor.shape[2] == head_dim && tensor.stride[2] == 1);
}
inline void check_f32_heads(const ConstTensorRef& tensor,
                            std::int64_t tokens,
                            std::int64_t heads,
                            std::int64_t head_dim) {
  check_heads(tensor, DType::kF32, tokens, heads, head_dim);
}

/// CHECK-fails unless `tensor` is a contiguous vector of `n` elements of that type.
inline void check_vector(const ConstTensorRef& tensor, DType dtype, std::int64_t n) {
  HEDDLE_CHECK(tensor.rank == 1 && tensor.dtype == dtype);
  HEDDLE_CHECK(tensor.shape[0] == n && tensor.stride[0] == 1);
}

/// CHECK-fails unless `tensor` is a contiguous matrix.
inline void check_matrix(const ConstTensorRef& tensor) {
  HEDDLE_CHECK(tensor.rank == 2);
  HEDDLE_CHECK(tensor.stride[1] == 1 && tensor.stride[0] == tensor.shape[1]);
}
/// CHECK-fails unless `tensor` is a contiguous matrix of float32 or bfloat16.
inline void check_weight(const ConstTensorRef& tensor) {
  check_matrix(tensor);
  check_floating(tensor.dtype);
}

/// CHECK-fails unless the parts of a batch over a paged cache fit each other.
inline void check_paged(const BatchRows& rows, const PagedKv& kv) {
  const std::int64_t sequences = rows.sequences();
  check_vector(rows.first_position, DType::kI32, sequences);
  check_vector(rows.begin, DType::kI32, sequences + 1);
  HEDDLE_CHECK(kv.table.rank == 2 && kv.table.dtype == DType::kI32);
  HEDDLE_CHECK(kv.table.shape[0] == sequences && kv.table.stride[1] == 1);
  HEDDLE_CHECK(kv.dtype == DType::kF32 || kv.dtype == DType::kBf16 || kv.scaled());
  HEDDLE_CHECK(kv.block_tokens > 0 && kv.block_bytes > 0);
}

/// As check_projected(), of a model with such a cache: over codes it may compute in either type.
inline void check_projected_kv(const OpContext& context, DType dtype, const PagedKv& kv) {
  check_projected(context, dtype, kv.scaled() ? dtype : kv.dtype);
}

}  // namespace heddle::ops
