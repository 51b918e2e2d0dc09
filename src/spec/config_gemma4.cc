#include "spec/config_gemma4.h"

#include <cmath>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "spec/config_family.h"

namespace heddle::spec {
namespace {

/// What E2B and E4B have, and nothing here computes.
void reject_small(JsonFields& fields) {
  const auto refuse = [&](std::string_view key, std::int64_t most, std::int64_t usual) {
    if (fields.integer(key, {0, most}, usual) != 0) {
      fields.reject(key, fmt::format("only 0 is built in; {}", kElsewhere));
    }
  };
  refuse("hidden_size_per_layer_input", kHiddenMax, 256);
  refuse("num_kv_shared_layers", kLayersMax, 0);
}

void read_global_heads(JsonFields& fields, ModelSpec& model) {
  constexpr std::string_view kHeads = "num_global_key_value_heads";
  model.keys_are_values = fields.boolean("attention_k_eq_v", false);
  model.global_head_dim = fields.integer("global_head_dim", {2, kHeadDimMax}, 512);
  // The key counts only where keys are values.
  const bool fewer =
      model.keys_are_values && fields.find(kHeads) != nullptr && !fields.is_null(kHeads);
  model.global_kv_heads = fewer ? fields.integer(kHeads, {1, kHeadsMax}) : model.kv_heads;
  if (fields.ok() && model.heads % model.global_kv_heads != 0) {
    fields.reject(
        kHeads,
        fmt::format(
            "{} must divide num_attention_heads, which is {}", model.global_kv_heads, model.heads));
  }
  if (fields.ok() && model.global_head_dim % 2 != 0) {
    fields.reject(
        "global_head_dim",
        fmt::format("heads of {} cannot rotate in pairs; it must be even", model.global_head_dim));
  }
}

void read_experts(JsonFields& fields, ModelSpec& model) {
  Experts& experts = model.experts;
  experts = {.count = fields.integer("num_experts", {1, kExpertsMax}),
             .active = fields.integer("top_k_experts", {1, kExpertsMax}),
             .intermediate = fields.integer("moe_intermediate_size", {1, kIntermediateMax}),
             .normalised = true,
             .beside = true};
  if (fields.ok() && experts.count * experts.intermediate > kIntermediateMax) {
    fields.reject(
        "num_experts",
        fmt::format(
            "experts of {} are at most {} wide together", experts.intermediate, kIntermediateMax));
  }
  if (fields.ok() && experts.active > experts.count) {
    fields.reject(
        "top_k_experts",
        fmt::format("a token cannot take {} of {} experts", experts.active, experts.count));
  }
}

}  // namespace

void read_gemma4(JsonFields& fields, ModelSpec& model) {
  reject_small(fields);
  read_global_heads(fields, model);
  if (fields.boolean("enable_moe_block", false)) {
    read_experts(fields, model);
  }
  model.activation = Activation::kGeluTanh;
  model.norms = Norms::kAround;
  model.qk_norm = true;
  model.value_norm = true;
  model.layer_scale = true;
  model.scales.embedding = std::sqrt(static_cast<double>(model.hidden));
  model.scales.attention = 1.0;
  model.scales.logit_cap = fields.is_null("final_logit_softcapping")
                               ? 0.0
                               : fields.number("final_logit_softcapping", {1e-3, 1e6}, 0.0);
}

}  // namespace heddle::spec
