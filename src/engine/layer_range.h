#pragma once

#include <cstdint>

#include "spec/model_spec.h"

namespace heddle::engine {

/// Layers [begin, end) of a model: all of them, or one stage of a pipeline.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  [[nodiscard]] bool contains(LayerRange other) const {
    return begin <= other.begin && other.end <= end;
  }
};

[[nodiscard]] inline LayerRange all_layers(const spec::ModelSpec& model) {
  return {.begin = 0, .end = model.layers};
}

}  // namespace heddle::engine
