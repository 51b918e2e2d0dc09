#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/cuda/kernels/batch_params.h"

namespace heddle::ops::cuda {

/// Columns of a state that lie together (ops::DeltaHeadLayout).
constexpr std::int32_t kDeltaStrip = 16;
/// Parts of the key heads that a launch takes at most; further ones are further launches.
constexpr std::int32_t kDeltaParts = 16;

/// Elements of a key that heddle_delta_rule takes at most, and heddle_delta_rule_long.
constexpr std::int32_t kDeltaShortKey = 128;
constexpr std::int32_t kDeltaLongKey = 256;

/// ops::DeltaPart as kernels take it.
struct DeltaPartParams {
  std::int32_t heads;  ///< Key heads, consecutive.
  std::byte* base;
  std::int64_t block_bytes;
  std::int64_t offset;
  const std::int32_t* table;  ///< [sequences], `table_stride` apart.
  std::int64_t table_stride;
  const std::int32_t* copies;  ///< [sequences, columns]
  std::int64_t copies_stride;
};

/// Of heddle_delta_inputs, heddle_delta_rule and heddle_delta_gate, which follow each other
/// (ops/gated_delta.h): what goes into the rule; the rule; the norm and the gate of what comes of
/// it.
struct GatedDeltaParams {
  BatchParams batch;
  DeltaPartParams parts[kDeltaParts];
  std::int32_t first_head;  ///< The key head that parts[0] begins with.
  std::int32_t heads;       ///< Key heads of all parts.
  // The shape of the layer.
  std::int32_t key_heads;
  std::int32_t value_heads;
  std::int32_t key_dim;
  std::int32_t value_dim;
  std::int32_t kernel;
  std::int32_t tiled;
  std::int64_t tail;        ///< Floats of a key head's tail,
  std::int64_t head_bytes;  ///< and bytes of all that it keeps.
  const float* in;          ///< [tokens, channels + values]
  std::int64_t in_stride;
  float* rates;  ///< [tokens, 2 value_heads]: b and a, then beta and alpha.
  std::int64_t rates_stride;
  const float* conv;  ///< [channels, kernel]
  const float* fading;
  const float* step_bias;
  const float* norm;
  float eps;
  std::int32_t tokens;
  const std::int32_t* copy_behind;  ///< [sequences, copy_columns]
  std::int32_t copy_columns;        ///< 0: nothing is copied.
  /// [tokens, channels]: behind the convolution; in the end values are what tokens see.
  float* rows;
  void* out;  ///< [tokens, values]
  std::int64_t out_stride;
  std::int32_t out_bf16;  ///< 0: float32.
};

/// Threads of a block of each. A block of the first has a head of queries, keys or values of a
/// token: block (token, head of those of its key head, key head). One of the second has a strip of
/// a value head's state: block (sequence, value head, strip). A warp of the third has a value head
/// of a token.
constexpr std::uint32_t kDeltaInputThreads = 256;
constexpr std::uint32_t kDeltaRuleThreads = 128;
constexpr std::uint32_t kDeltaGateThreads = 128;

}  // namespace heddle::ops::cuda
