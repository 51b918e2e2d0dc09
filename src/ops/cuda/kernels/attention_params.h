#pragma once

#include "ops/cuda/kernels/batch_params.h"

namespace heddle::ops::cuda {

/// Parts that the positions of a sequence are split into at most.
constexpr std::int32_t kAttentionSplitsMax = 32;

/// ops::AttentionParts as kernels take them; nullptr: absent.
struct AttentionPartsParams {
  const std::int32_t* begin;  ///< [sequences]
  const std::int32_t* end;    ///< [sequences]
  const float* resumed;       ///< [tokens, heads, head_dim + 2]
  std::int64_t resumed_stride;
  float* left;  ///< [tokens, heads, head_dim + 2]
  std::int64_t left_stride;
  std::int32_t present;  ///< Not 0: partial results and the merge, whatever the splits.
  /// Not 0: rows whose state in `left` is there stay as they are (guest_params.h).
  std::int32_t only_missing;
};

/// ops::QueryTurn as the kernels on tensor cores take it; without `cos_sin` there is none.
struct QueryTurnParams {
  const float* cos_sin;  ///< [tokens, head_dim]
  std::int64_t cos_sin_stride;
  const float* norm;  ///< [head_dim], or nullptr.
  float eps;
};

/// For all kernels of attention. The query heads that share a key/value head stand together as
/// rows: row r of a sequence and key/value head is token r / group, query head r % group of the
/// group. Sequences of up to `narrow_rows` rows are done by a narrow kernel: block (s, key/value
/// head, split) for sequence s. The others are done by a wide one: block (i, key/value head, split)
/// for a tile of rows, tiles counted from the last of the last sequence. A kernel leaves the
/// sequences of the other kind alone. Where positions are split, or a call is about a part of them,
/// each block leaves a partial result, and heddle_attention_merge or the last block of a narrow
/// kernel puts them together.
struct AttentionParams {
  BatchParams batch;
  PagedKvParams kv;
  const void* query;          ///< [tokens, heads, head_dim]
  std::int64_t query_stride;  ///< Between tokens.
  void* out;                  ///< [tokens, heads, head_dim]
  std::int64_t out_stride;    ///< Between tokens.
  float* lse;                 ///< [tokens, heads], or nullptr.
  std::int64_t lse_stride;
  float* partial_out;    ///< [splits, tokens, heads, head_dim]: sums of values by weight.
  float* partial_state;  ///< [splits, tokens, heads, 2]: largest score in base 2, sum of weights.
  AttentionPartsParams parts;
  QueryTurnParams turn;
  std::int64_t tokens;
  std::int32_t heads;
  std::int32_t group;  ///< heads / kv_heads
  std::int32_t window;
  std::int32_t query_bf16;  ///< 0: float32.
  std::int32_t out_bf16;    ///< 0: float32.
  std::int32_t quads;       ///< Keys, values and queries may be loaded four elements at a time.
  std::int32_t narrow_rows;
  std::int32_t narrow_splits;
  std::int32_t wide_splits;
  /// Of narrow kernels, one for each x and y: by them the last block of a sequence's splits finds
  /// out that it is, and puts the partial results together (last_block.cuh). nullptr where
  /// heddle_attention_merge does that.
  std::int32_t* counters;
  float scale_log2;    ///< scale / ln 2, for scores in base 2.
  float cap_log2;      ///< soft_cap / ln 2; 0: none.
  float cap_turn;      ///< 2 scale / (ln 2 soft_cap), as capped() takes it.
  const float* sinks;  ///< [heads], or nullptr.
};

}  // namespace heddle::ops::cuda
