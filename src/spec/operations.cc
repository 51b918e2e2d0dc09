#include "spec/operations.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace heddle::spec {

std::string_view cpu_only(const ModelSpec& model, DType image) {
  if (is_encoder(model)) {
    return "an encoder";
  }
  const std::vector<Heads> kinds = kinds_of_heads(model);
  if (std::ranges::any_of(kinds, [](const Heads& heads) { return heads.dim > kGpuHeadDim; })) {
    return "heads of attention wider than 256";
  }
  if (model.global_head_dim > 0) {
    return "layers whose heads differ in size";
  }
  if (model.value_norm) {
    return "norms of values";
  }
  if (model.layer_scale) {
    return "layers that are multiplied by a number of their own";
  }
  const Experts& experts = model.experts;
  if (experts.beside) {
    return "experts beside an MLP that all tokens take";
  }
  if (experts.slots > 0) {
    return "experts that stay in host memory";
  }
  if (experts.count > 0 && image != DType::kBf16 && image != DType::kStored) {
    return "experts in float32 or int8";
  }
  // What kernels load at once, and what they have room for.
  if (experts.count > 0 && (model.hidden % 8 != 0 || experts.intermediate % 8 != 0)) {
    return "experts whose widths are no multiples of 8";
  }
  if (experts.count > kGpuExperts || experts.active > kGpuActiveExperts) {
    return "so many experts";
  }
  return "";
}

std::int64_t step_tokens(const ModelSpec& model, std::int64_t most) {
  return is_encoder(model) ? std::max(most, model.max_position) : most;
}

bool has_states(const ModelSpec& model) {
  return model.linear.key_heads > 0;
}

bool keeps_state(const ModelSpec& model, std::int64_t layer) {
  return !model.mixer.empty() && model.mixer[static_cast<std::size_t>(layer)] == Mixer::kDeltaRule;
}

void fit_rope(ModelSpec& model, std::int64_t context) {
  RopeScaling& rope = model.rope;
  if (rope.kind == RopeKind::kLongRope && !rope.short_factors.empty() &&
      context <= rope.original_max_position) {
    rope.factors = std::move(rope.short_factors);
  }
  rope.short_factors.clear();
}

LayerRope rope_of(const ModelSpec& model, std::int64_t layer) {
  return model.layer_rope.empty() ? LayerRope::kModels
                                  : model.layer_rope[static_cast<std::size_t>(layer)];
}

Heads heads_of(const ModelSpec& model, LayerRope rope) {
  const bool global = model.global_head_dim > 0 && rope == LayerRope::kModels;
  return {.query = model.heads,
          .kv = global ? model.global_kv_heads : model.kv_heads,
          .dim = global ? model.global_head_dim : model.head_dim};
}

Heads heads_of(const ModelSpec& model, std::int64_t layer) {
  return heads_of(model, rope_of(model, layer));
}

std::vector<Heads> kinds_of_heads(const ModelSpec& model) {
  std::vector<Heads> kinds{heads_of(model, LayerRope::kLocal)};
  if (model.global_head_dim > 0) {
    kinds.push_back(heads_of(model, LayerRope::kModels));
  }
  return kinds;
}

std::int64_t rotary_dim(const ModelSpec& model, LayerRope rope) {
  return model.rotary_dim > 0 ? model.rotary_dim : heads_of(model, rope).dim;
}

float attention_scale(const ModelSpec& model) {
  return model.scales.attention > 0 ? static_cast<float>(model.scales.attention)
                                    : 1.0F / std::sqrt(static_cast<float>(model.head_dim));
}

}  // namespace heddle::spec
