#pragma once

#include <cstdint>

#include "ops/cuda/kernels/linear_params.h"

namespace heddle::ops::cuda {

/// Tokens of the skinny kernels: more than a thin one has, and so few that weights are most of what
/// is read.
constexpr std::int64_t kSkinnyTokensMax = 64;
/// Outputs of a tile, of all tokens; of gates and ups, half as many of each.
constexpr std::uint32_t kSkinnyOutputs = 128;
constexpr std::uint32_t kSkinnyThreads = 256;
/// Of a row, in one step through the inputs: a line.
constexpr std::int64_t kSkinnyStepBytes = 128;
constexpr std::uint32_t kSkinnyStages = 4;  ///< Steps on their way or in use.

/// Dynamic shared memory of a block with room for `tokens`.
constexpr std::uint32_t skinny_shared_bytes(std::int64_t tokens) {
  return kSkinnyStages * static_cast<std::uint32_t>((kSkinnyOutputs + tokens) * kSkinnyStepBytes);
}

/// A product of bfloat16, whose rows are aligned. The steps of all tiles, one tile after the other,
/// are dealt out to blocks in equal runs, so that each has work of the same size, however many
/// tiles there are (stream-K: Osama et al., PPoPP 2023).
struct SkinnyParams {
  LinearParams linear{};
  /// Sums of tiles that several blocks have a part of: two tiles of [outputs, tokens] for each
  /// block, of the tile that its run begins in and of the one that it ends in.
  float* partial = nullptr;
  std::int32_t* counters = nullptr;  ///< One for each tile (last_block.cuh).
  std::int32_t steps = 0;            ///< Of a tile.
  std::int32_t tiles = 0;
};

}  // namespace heddle::ops::cuda
