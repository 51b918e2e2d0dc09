#pragma once

#include <string_view>

#include "spec/model_spec.h"

namespace heddle::spec {

/// What of the model's operations only CPUs have so far, in words for messages: "experts", "norms
/// of what layers add". Empty where GPUs have all.
[[nodiscard]] std::string_view cpu_only(const ModelSpec& model);

/// What scores of attention are multiplied with.
[[nodiscard]] float attention_scale(const ModelSpec& model);

}  // namespace heddle::spec
