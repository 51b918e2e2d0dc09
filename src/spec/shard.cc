#include "spec/shard.h"

#include <string>

#include "base/check.h"
#include "spec/operations.h"

namespace heddle::spec {
namespace {

bool is_divided(const ModelSpec& model, std::int64_t ranks) {
  return !model.qk_norm_whole && !is_encoder(model) && !has_states(model) &&
         !model.attention_gate && model.heads % ranks == 0 && model.kv_heads % ranks == 0 &&
         model.global_kv_heads % ranks == 0 && model.intermediate % ranks == 0 &&
         model.experts.intermediate % ranks == 0 && ranks <= model.vocab;
}

/// "1, 2 or 4": the numbers of ranks that would do.
std::string possible_ranks(const ModelSpec& model) {
  std::string text = "1";
  std::string last;
  for (std::int64_t ranks = 2; ranks <= model.kv_heads; ++ranks) {
    if (is_divided(model, ranks)) {
      text += last.empty() ? "" : ", " + last;
      last = std::to_string(ranks);
    }
  }
  return last.empty() ? "only " + text : text + " or " + last;
}

/// "8 key-value heads", "8 and 2 key-value heads".
std::string kv_heads(const ModelSpec& model) {
  const std::string global =
      model.global_kv_heads > 0 ? " and " + std::to_string(model.global_kv_heads) : "";
  return std::to_string(model.kv_heads) + global + " key-value heads";
}

/// "MLP of 48", "experts of 16".
std::string widths(const ModelSpec& model) {
  const std::string experts = "experts of " + std::to_string(model.experts.intermediate);
  const std::string mlp = "MLP of " + std::to_string(model.intermediate);
  return model.experts.count == 0  ? mlp
         : model.intermediate == 0 ? experts
                                   : mlp + " and " + experts;
}

}  // namespace

Result<void> divides(const ModelSpec& model, std::int64_t ranks) {
  HEDDLE_CHECK(model.shard.ranks == 1);
  if (ranks == 1 || (ranks > 1 && is_divided(model, ranks))) {
    return {};
  }
  if (is_encoder(model)) {
    return Error{
        Code::kInvalidArgument,
        "divide a model into " + std::to_string(ranks) + " shards: only whole models are encoders"};
  }
  if (model.qk_norm_whole) {
    return Error{Code::kInvalidArgument,
                 "divide a model into " + std::to_string(ranks) +
                     " shards: its queries and keys have norms over all heads at once"};
  }
  if (has_states(model) || model.attention_gate) {
    return Error{Code::kInvalidArgument,
                 "divide a model into " + std::to_string(ranks) +
                     " shards: only whole models have linear attention or gates of attention"};
  }
  return Error{Code::kInvalidArgument,
               "divide a model into " + std::to_string(ranks) + " shards: its " +
                   std::to_string(model.heads) + " attention heads, " + kv_heads(model) + " and " +
                   widths(model) +
                   " must be multiples of that; possible here: " + possible_ranks(model)};
}

ModelSpec shard_of(const ModelSpec& model, Shard shard) {
  HEDDLE_CHECK(divides(model, shard.ranks));
  HEDDLE_CHECK(shard.rank >= 0 && shard.rank < shard.ranks);
  ModelSpec own = model;
  own.heads /= shard.ranks;
  own.kv_heads /= shard.ranks;
  own.global_kv_heads /= shard.ranks;
  own.intermediate /= shard.ranks;
  own.experts.intermediate /= shard.ranks;
  own.shard = shard;
  return own;
}

VocabRange vocab_range(const ModelSpec& model, std::int64_t rank) {
  const std::int64_t ranks = model.shard.ranks;
  HEDDLE_CHECK(rank >= 0 && rank < ranks);
  return {.begin = model.vocab * rank / ranks, .end = model.vocab * (rank + 1) / ranks};
}

}  // namespace heddle::spec
