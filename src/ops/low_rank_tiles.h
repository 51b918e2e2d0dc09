#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/context.h"
#include "ops/low_rank_tile.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

struct AddLowRankTilesArgs {
  ConstTensorRef x{};  ///< [tokens, inputs], f32 or bf16, as the matrices are.
  /// On the device, as what they refer to. No token is in two of them.
  const LowRankTile* tiles = nullptr;
  std::int64_t count = 0;  ///< Of tiles.
  std::int64_t entry = 0;  ///< Where in each table those of the product begin,
  std::int64_t pairs = 1;  ///< and how many there are; their outputs are apart from each other.
  std::int64_t rank = 0;   ///< Of each, at most.
  TensorRef out{};         ///< [tokens, outputs], f32, or of bf16 `x` also bf16. Not `x`.
};

/// out[t] += B (A x[t]) for the tokens of each tile (E. Hu et al., "LoRA", arXiv:2106.09685,
/// Eq. (3)); tokens of none, and outputs of no pair, are neither read nor written.
///
/// What add_low_rank() does, where it is enqueued before the adapters are known: tiles and tables
/// are read when it runs, so that a CUDA graph of it serves other adapters. Two kernels, one for
/// all A and one for all B, go through the tiles as SGMV does (L. Chen et al., "Punica",
/// arXiv:2310.18547, section 4). A x[t] is summed in float32 and rounded once to the type of `x`,
/// B of that likewise before it is added. A token's bits depend on its inputs and its adapter
/// alone, not on tiles or the tokens beside it. Shapes that do not fit are bugs and CHECK-fail.
/// Only GPUs have it.
void add_low_rank_tiles(OpContext& context, const AddLowRankTilesArgs& args);

/// Bytes of scratch that takes for so many tokens of `dtype`, and pairs of at most `rank`.
[[nodiscard]] std::size_t low_rank_tiles_bytes(std::int64_t tokens, std::int64_t rank, DType dtype);

}  // namespace heddle::ops
