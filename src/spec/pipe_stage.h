#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "spec/dtype.h"
#include "spec/model_spec.h"

/// A model cut into the stages of a pipeline. A stage is a model: a ModelSpec with a range of the
/// layers, which has an image, a KV cache and a footprint of its own. Stage 0 leads: it has the
/// embedding before its layers, and behind all layers the final norm and the head.
namespace heddle::spec {

/// Layers [begin, end) of a model.
struct LayerRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  [[nodiscard]] bool contains(LayerRange other) const {
    return begin <= other.begin && other.end <= end;
  }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// How many stages the pipeline has of which `model` is one; 1 for a whole model.
[[nodiscard]] std::int64_t stages_of(const ModelSpec& model);

/// The layers that stage `index` of the pipeline of `model` has.
[[nodiscard]] LayerRange layers_of(const ModelSpec& model, std::int64_t index);

/// Those of `model` itself: all of a whole model.
[[nodiscard]] inline LayerRange own_layers(const ModelSpec& model) {
  return layers_of(model, model.stage.index);
}

/// Whether it has the embedding, the final norm and the head.
[[nodiscard]] inline bool leads(const ModelSpec& model) {
  return model.stage.index == 0;
}

/// Where to cut a whole model with matrices as `dtype` into `stages` stages, so that the largest
/// has as few bytes of weights as can be: PipeStage::ends, empty for one stage. kInvalidArgument
/// where it has fewer layers than that, or linear attention.
Result<std::vector<std::int64_t>> cut_layers(const ModelSpec& model,
                                             DType dtype,
                                             std::int64_t stages);

/// Stage `stage.index` of a whole model that is cut at `stage.ends`: ascending, beginning above 0
/// and ending with its layers.
[[nodiscard]] ModelSpec stage_of(const ModelSpec& model, PipeStage stage);

/// Whether `stage` is one of a model with so many layers, as stage_of() wants it.
[[nodiscard]] bool is_stage(const PipeStage& stage, std::int64_t layers);

}  // namespace heddle::spec
