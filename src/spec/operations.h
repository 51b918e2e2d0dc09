#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "spec/model_spec.h"

namespace heddle::spec {

/// Of experts, what a GPU's kernels have room for: in a layer, and that a token takes.
inline constexpr std::int64_t kGpuExperts = 1024;
inline constexpr std::int64_t kGpuActiveExperts = 32;
/// Elements of a head of attention, likewise.
inline constexpr std::int64_t kGpuHeadDim = 256;

/// What of the operations of a model, whose image is of `image`, only CPUs have so far, in words
/// for messages: "an encoder", "experts in float32 or int8". Empty where GPUs have all.
[[nodiscard]] std::string_view cpu_only(const ModelSpec& model, DType image);

/// Whether the model is an encoder, whose texts are computed in one pass each.
[[nodiscard]] inline bool is_encoder(const ModelSpec& model) {
  return model.encoder.positions > 0;
}

/// How many tokens of the model a step may have, where it may have `most` of others: an encoder's
/// longest text at least.
[[nodiscard]] std::int64_t step_tokens(const ModelSpec& model, std::int64_t most);

/// How many numbers stand for a text: those of a hidden state, or a score.
[[nodiscard]] inline std::int64_t pooled_width(const ModelSpec& model) {
  return model.encoder.scores ? 1 : model.hidden;
}

/// Rows of what the MLP's activation comes of: gates and ups, or of an encoder ups alone.
[[nodiscard]] inline std::int64_t gate_up_rows(const ModelSpec& model) {
  return (is_encoder(model) ? 1 : 2) * model.intermediate;
}

/// Whether sequences of the model have a state beside keys and values: layers of linear attention.
[[nodiscard]] bool has_states(const ModelSpec& model);

/// Whether this layer has that in place of keys and values.
[[nodiscard]] bool keeps_state(const ModelSpec& model, std::int64_t layer);

/// The heads of attention of a layer.
struct Heads {
  std::int64_t query = 0;
  std::int64_t kv = 0;
  std::int64_t dim = 0;  ///< Of each.

  /// Elements of all queries of a token, of all its keys, and of queries, keys and values.
  [[nodiscard]] std::int64_t queries() const { return query * dim; }
  [[nodiscard]] std::int64_t keys() const { return kv * dim; }
  [[nodiscard]] std::int64_t qkv() const { return queries() + 2 * keys(); }
  friend bool operator==(const Heads&, const Heads&) = default;
};

/// By which rotary embedding a layer turns.
[[nodiscard]] LayerRope rope_of(const ModelSpec& model, std::int64_t layer);

/// The heads of layers that turn so.
[[nodiscard]] Heads heads_of(const ModelSpec& model, LayerRope rope);

/// The heads of a layer, which has attention.
[[nodiscard]] Heads heads_of(const ModelSpec& model, std::int64_t layer);

/// The heads that layers of the model have: one kind, or two.
[[nodiscard]] std::vector<Heads> kinds_of_heads(const ModelSpec& model);

/// How many elements of each query and key head rotate, in layers that turn so.
[[nodiscard]] std::int64_t rotary_dim(const ModelSpec& model, LayerRope rope = LayerRope::kModels);

/// Chooses the factors of longrope for contexts of at most `context` tokens: the short ones where
/// that is within original_max_position, else the long ones. The choice holds for all requests, so
/// that what is cached of a prompt fits each that begins with it. Other models stay as they are.
void fit_rope(ModelSpec& model, std::int64_t context);

/// What scores of attention are multiplied with.
[[nodiscard]] float attention_scale(const ModelSpec& model);

}  // namespace heddle::spec
