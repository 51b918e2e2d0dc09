#include "engine/kv_plan.h"

#include <map>

#include "base/check.h"

namespace heddle::engine {

Result<KvPlan> plan_kv(const spec::ModelSpec& model,
                       LayerRange range,
                       spec::DType weights,
                       std::size_t page_bytes) {
  const spec::DType dtype = spec::compute_dtype(weights);
  HEDDLE_CHECK(all_layers(model).contains(range));
  std::map<std::int64_t, std::vector<std::int64_t>> by_window;
  for (std::int64_t layer = range.begin; layer < range.end; ++layer) {
    const auto i = static_cast<std::size_t>(layer);
    by_window[model.window.empty() ? 0 : model.window[i]].push_back(layer);
  }
  KvPlan plan{.range = range,
              .dtype = dtype,
              .groups = {},
              .places = std::vector<KvPlan::Place>(static_cast<std::size_t>(range.size()))};
  for (const auto& [window, layers] : by_window) {
    const auto split = memory::kv_groups({.layers = static_cast<std::int64_t>(layers.size()),
                                          .kv_heads = model.kv_heads,
                                          .head_dim = model.head_dim,
                                          .element_bytes = spec::dtype_bytes(dtype)},
                                         page_bytes);
    if (!split) {
      return split.error();
    }
    for (const memory::KvGroup& part : *split) {
      KvGroupPlan group{.window = window, .layers = {}, .geometry = part.geometry};
      for (std::int64_t i = 0; i < part.geometry.shape.layers; ++i) {
        const std::int64_t layer = layers[static_cast<std::size_t>(part.first_layer + i)];
        plan.places[static_cast<std::size_t>(layer - range.begin)] = {.group = plan.groups.size(),
                                                                      .layer_in_group = i};
        group.layers.push_back(layer);
      }
      plan.groups.push_back(std::move(group));
    }
  }
  return plan;
}

}  // namespace heddle::engine
