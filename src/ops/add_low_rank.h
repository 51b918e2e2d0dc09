#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/context.h"
#include "ops/tensor_ref.h"

namespace heddle::ops {

/// Two matrices that add B (A x) to some outputs of a product (E. Hu et al., "LoRA",
/// arXiv:2106.09685, Eq. (3)).
struct LowRankPair {
  std::int64_t first = 0;  ///< Of the product's outputs.
  ConstTensorRef a{};      ///< f32 or bf16 [rank, inputs], contiguous.
  ConstTensorRef b{};      ///< [outputs, rank], likewise and of the same type.
};

/// Consecutive tokens that go through the same pairs, whose outputs are apart from each other.
struct LowRankRows {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  std::span<const LowRankPair> pairs{};  ///< Live until the stream has synchronised.
};

struct AddLowRankArgs {
  ConstTensorRef x{};               ///< [tokens, inputs], of the type of the pairs.
  std::vector<LowRankRows> rows{};  ///< Ascending, apart from each other.
  TensorRef out{};                  ///< f32 [tokens, outputs]. Does not overlap `x`.
  /// Tokens for whose inputs the stream has been lent memory: as many are looked at at once.
  std::int64_t most_tokens = 0;
};

/// out[t] += B (A x[t]) for the tokens of each pair; other tokens are neither read nor written.
///
/// A x[t] is summed as linear() sums and rounded once to the type of the pairs; B of that likewise,
/// with out[t] as the residual. So the bits are those of the two products one after the other, for
/// any number of tokens, pairs and threads. Threads share two loops over all pairs, one for all A
/// and one for all B, as B. Chen et al., "Punica", arXiv:2310.18547, has it on a GPU. Shapes and
/// types that do not fit are bugs and CHECK-fail. Only CPUs have it.
void add_low_rank(OpContext& context, AddLowRankArgs args);

/// Bytes that the stream is to be lent for each token, beside what linear() packs of its inputs,
/// where at most `pairs` of at most `rank` are added to a product.
[[nodiscard]] std::int64_t low_rank_bytes(std::int64_t rank, std::int64_t pairs);

}  // namespace heddle::ops
