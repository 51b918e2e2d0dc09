#include "spec/pipe_stage.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "spec/memory_needs.h"
#include "spec/operations.h"

namespace heddle::spec {
namespace {

/// The ends of stages of which the leader has `first` layers, and the others evenly the rest.
std::vector<std::int64_t> ends_after(std::int64_t first, std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> ends{first};
  for (std::int64_t i = 1; i < stages; ++i) {
    ends.push_back(first + (layers - first) * i / (stages - 1));
  }
  return ends;
}

}  // namespace

std::int64_t stages_of(const ModelSpec& model) {
  return std::max<std::int64_t>(1, std::ssize(model.stage.ends));
}

LayerRange layers_of(const ModelSpec& model, std::int64_t index) {
  HEDDLE_CHECK(index >= 0 && index < stages_of(model));
  const auto at = static_cast<std::size_t>(index);
  const std::vector<std::int64_t>& ends = model.stage.ends;
  return {.begin = at == 0 ? 0 : ends[at - 1], .end = ends.empty() ? model.layers : ends[at]};
}

Result<std::vector<std::int64_t>> cut_layers(const ModelSpec& model,
                                             DType dtype,
                                             std::int64_t stages) {
  HEDDLE_CHECK(stages_of(model) == 1);
  if (stages == 1) {
    return std::vector<std::int64_t>{};
  }
  if (stages < 1 || stages > model.layers) {
    return Error{Code::kInvalidArgument,
                 "cut a model of " + std::to_string(model.layers) + " layers into " +
                     std::to_string(stages) + " stages: each needs a layer at least"};
  }
  if (is_encoder(model)) {
    return Error{
        Code::kInvalidArgument,
        "cut a model into " + std::to_string(stages) + " stages: only whole models are encoders"};
  }
  if (has_states(model)) {
    return Error{Code::kInvalidArgument,
                 "cut a model into " + std::to_string(stages) +
                     " stages: only whole models have linear attention"};
  }
  std::vector<std::int64_t> best;
  std::uint64_t least = UINT64_MAX;
  for (std::int64_t first = 1; first <= model.layers - (stages - 1); ++first) {
    const std::vector<std::int64_t> ends = ends_after(first, model.layers, stages);
    std::uint64_t largest = 0;
    for (std::int64_t i = 0; i < stages; ++i) {
      largest = std::max(largest, weight_bytes(stage_of(model, {.index = i, .ends = ends}), dtype));
    }
    if (largest < least) {
      least = largest;
      best = ends;
    }
  }
  return best;
}

bool is_stage(const PipeStage& stage, std::int64_t layers) {
  if (stage.ends.empty()) {
    return stage.index == 0;
  }
  const bool ascends =
      std::adjacent_find(stage.ends.begin(), stage.ends.end(), [](auto before, auto after) {
        return before >= after;
      }) == stage.ends.end();
  return stage.index >= 0 && std::cmp_less(stage.index, stage.ends.size()) && ascends &&
         stage.ends.front() > 0 && stage.ends.back() == layers;
}

ModelSpec stage_of(const ModelSpec& model, PipeStage stage) {
  HEDDLE_CHECK(is_stage(stage, model.layers));
  ModelSpec own = model;
  own.stage = std::move(stage);
  return own;
}

}  // namespace heddle::spec
