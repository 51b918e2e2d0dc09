#pragma once

#include "ops/cuda/kernels/batch_params.h"

namespace heddle::ops::cuda {

/// heddle_kv_append: block x writes token x, together with the others of that x.
struct KvAppendParams {
  BatchParams batch;
  PagedKvParams kv;
  const float* key;    ///< [tokens, kv_heads, head_dim]
  const float* value;  ///< The same.
  std::int64_t key_token_stride;
  std::int64_t key_head_stride;
  std::int64_t value_token_stride;
  std::int64_t value_head_stride;
  std::int32_t quads;  ///< Heads are aligned on both sides and head_dim a multiple of four.
};

}  // namespace heddle::ops::cuda
