#pragma once

#include <cstdint>

#include "base/result.h"
#include "spec/model_spec.h"

/// A model sharded across devices (tensor parallelism: M. Shoeybi et al., "Megatron-LM",
/// arXiv:1909.08053, section 3). A shard is a model: a ModelSpec with fewer heads and a narrower
/// MLP, which has an image, a KV cache and a footprint of its own.
namespace heddle::spec {

/// Whether a whole model can be divided into `ranks` shards: they must divide its heads, its
/// key-value heads and the widths of its MLP and experts, and may not outnumber its vocabulary. A
/// model with linear attention or gates of attention cannot be.
/// kInvalidArgument, saying what does not divide and which numbers would do.
[[nodiscard]] Result<void> divides(const ModelSpec& model, std::int64_t ranks);

/// The part of a whole model that rank `shard.rank` has. Requires divides(model, shard.ranks) and a
/// rank in [0, ranks). With one rank the model itself.
[[nodiscard]] ModelSpec shard_of(const ModelSpec& model, Shard shard);

/// Consecutive tokens of the vocabulary.
struct VocabRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  friend bool operator==(const VocabRange&, const VocabRange&) = default;
};

/// The rows of the embedding and of the head that rank `rank` of the ranks of `model` has: all
/// ranges in rank order make up the vocabulary, and their sizes differ by one at most.
[[nodiscard]] VocabRange vocab_range(const ModelSpec& model, std::int64_t rank);

/// Those of `model` itself.
[[nodiscard]] inline VocabRange vocab_range(const ModelSpec& model) {
  return vocab_range(model, model.shard.rank);
}

/// Whether this shard adds what is added once for all of them: the biases of the projections whose
/// results are summed over the ranks. Its image alone has them.
[[nodiscard]] constexpr bool adds_once(const Shard& shard) {
  return shard.rank == 0;
}

}  // namespace heddle::spec
