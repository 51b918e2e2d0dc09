#pragma once

#include "base/check.h"
#include "ops/cuda/kernels/panel_params.h"
#include "spec/dtype.h"

namespace heddle::ops::cuda {

/// What kernels call blocks of that type. Requires is_blocks(dtype).
[[nodiscard]] inline PanelType panel_type(spec::DType dtype) {
  HEDDLE_CHECK(spec::is_blocks(dtype));
  if (spec::is_f8(dtype)) {
    return PanelType::kF8;
  }
  return static_cast<PanelType>(static_cast<int>(dtype) - static_cast<int>(spec::DType::kQ80));
}

}  // namespace heddle::ops::cuda
