#pragma once

#include "spec/pipe_stage.h"

namespace heddle::engine {

using spec::LayerRange;

[[nodiscard]] inline LayerRange all_layers(const spec::ModelSpec& model) {
  return {.begin = 0, .end = model.layers};
}

}  // namespace heddle::engine
