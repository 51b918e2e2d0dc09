#pragma once

#include <string_view>

#include "spec/model_spec.h"

namespace heddle::store {

/// What published checkpoints call the parts of a layer's experts, within the layer.
struct ExpertNames {
  std::string_view router{};   ///< A matrix.
  std::string_view experts{};  ///< Before an expert's number, which is before these of a matrix:
  std::string_view gate{};
  std::string_view up{};
  std::string_view down{};
};

/// Those of a model that has experts.
[[nodiscard]] ExpertNames expert_names(const spec::ModelSpec& model);

}  // namespace heddle::store
