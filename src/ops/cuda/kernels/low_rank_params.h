#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/low_rank_tile.h"

namespace heddle::ops::cuda {

/// Threads of a block of the kernels of low_rank.cu, and outputs of B that it has.
constexpr std::uint32_t kLowRankThreads = 256;
constexpr std::int64_t kLowRankOutputs = 128;

/// heddle_low_rank_shrink_*: block (x, y) makes, of tile x, `inner` of sixteen rows of one pair's
/// A. heddle_low_rank_expand_*: block (x, y) adds, for tile x, outputs [kLowRankOutputs y, ...).
struct LowRankParams {
  const LowRankTile* tiles;
  const std::byte* x;  ///< [tokens, inputs]
  std::byte* inner;    ///< [tokens, pairs, columns], of the type of `x`; 0 beyond a pair's rank.
  void* out;           ///< [tokens, outputs]
  std::int64_t x_stride;
  std::int64_t out_stride;
  std::int32_t entry;    ///< Of the product in the tables.
  std::int32_t pairs;    ///< From there on.
  std::int32_t columns;  ///< A multiple of kLowRankStep.
  std::int32_t inputs;
  std::int32_t outputs;
  std::int32_t aligned;   ///< Rows of `x` and of A begin at multiples of 16 bytes.
  std::int32_t out_bf16;  ///< The type of `out`; 0: float32.
};

}  // namespace heddle::ops::cuda
