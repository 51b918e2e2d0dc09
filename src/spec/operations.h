#pragma once

#include <cstdint>
#include <string_view>

#include "spec/model_spec.h"

namespace heddle::spec {

/// Of experts, what a GPU's kernels have room for: in a layer, and that a token takes.
inline constexpr std::int64_t kGpuExperts = 1024;
inline constexpr std::int64_t kGpuActiveExperts = 32;

/// What of the operations of a model, whose image is of `image`, only CPUs have so far, in words
/// for messages: "norms of what layers add", "experts in float32 or int8". Empty where GPUs have
/// all.
[[nodiscard]] std::string_view cpu_only(const ModelSpec& model, DType image);

/// What scores of attention are multiplied with.
[[nodiscard]] float attention_scale(const ModelSpec& model);

}  // namespace heddle::spec
