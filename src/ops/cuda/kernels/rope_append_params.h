#pragma once

#include "ops/cuda/kernels/batch_params.h"

namespace heddle::ops::cuda {

/// heddle_rope_append: block x does token x, together with the others of that x.
struct RopeAppendParams {
  BatchParams batch;
  PagedKvParams kv;
  const float* cos_sin;  ///< [tokens, head_dim]
  float* query;          ///< [tokens, heads, head_dim]
  const float* key;      ///< [tokens, kv_heads, head_dim]
  const float* value;    ///< [tokens, kv_heads, head_dim]
  std::int64_t cos_sin_stride;
  std::int64_t query_token_stride;
  std::int64_t query_head_stride;
  std::int64_t key_token_stride;
  std::int64_t key_head_stride;
  std::int64_t value_token_stride;
  std::int64_t value_head_stride;
  std::int32_t heads;  ///< Of queries.
  std::int32_t quads;  ///< Halves of heads may be moved four elements at a time everywhere.
};

}  // namespace heddle::ops::cuda
