#pragma once

#include "ops/cuda/kernels/batch_params.h"

namespace heddle::ops::cuda {

/// heddle_rope_append and heddle_rope_append_codes: block x does token x, together with the others
/// of that x.
struct RopeAppendParams {
  BatchParams batch;
  PagedKvParams kv;
  const float* cos_sin;  ///< [tokens, rotary]
  void* query;           ///< [tokens, heads, head_dim]
  const void* key;       ///< [tokens, kv_heads, head_dim]
  const void* value;     ///< [tokens, kv_heads, head_dim]
  std::int64_t cos_sin_stride;
  std::int64_t query_token_stride;
  std::int64_t query_head_stride;
  std::int64_t key_token_stride;
  std::int64_t key_head_stride;
  std::int64_t value_token_stride;
  std::int64_t value_head_stride;
  const float* query_norm;  ///< [head_dim] each; nullptr: such heads are not normalised.
  const float* key_norm;
  float eps;
  std::int32_t rotary;  ///< Elements of a head that rotate, the first ones.
  std::int32_t heads;   ///< Of queries; 0: attention turns them.
  /// Halves of heads, and of what rotates of them, may be moved four elements at a time everywhere.
  std::int32_t quads;
  std::int32_t from_bf16;  ///< The type of query, key and value; then the cache is no float32.
};

}  // namespace heddle::ops::cuda
