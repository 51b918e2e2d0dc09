#pragma once

#include <cstdint>
#include <string_view>

#include "spec/model_spec.h"

namespace heddle::spec {

/// Of experts, what a GPU's kernels have room for: in a layer, and that a token takes.
inline constexpr std::int64_t kGpuExperts = 1024;
inline constexpr std::int64_t kGpuActiveExperts = 32;

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

/// How many elements of each query and key head rotate.
[[nodiscard]] std::int64_t rotary_dim(const ModelSpec& model);

/// Chooses the factors of longrope for contexts of at most `context` tokens: the short ones where
/// that is within original_max_position, else the long ones. The choice holds for all requests, so
/// that what is cached of a prompt fits each that begins with it. Other models stay as they are.
void fit_rope(ModelSpec& model, std::int64_t context);

/// What scores of attention are multiplied with.
[[nodiscard]] float attention_scale(const ModelSpec& model);

}  // namespace heddle::spec
