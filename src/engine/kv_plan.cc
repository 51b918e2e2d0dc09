#include "engine/kv_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "base/check.h"
#include "spec/operations.h"

namespace heddle::engine {

namespace {

Result<KvPlan> lay_out(const spec::ModelSpec& model,
                       LayerRange range,
                       spec::DType weights,
                       std::size_t page_bytes) {
  const spec::DType dtype = spec::kv_dtype(model.kv, weights);
  HEDDLE_CHECK(all_layers(model).contains(range));
  // By window, and by heads.
  using Kind = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  std::map<Kind, std::vector<std::int64_t>> by_kind;
  for (std::int64_t layer = range.begin; layer < range.end; ++layer) {
    if (spec::keeps_state(model, layer)) {
      continue;
    }
    const auto i = static_cast<std::size_t>(layer);
    const spec::Heads heads = spec::heads_of(model, layer);
    by_kind[{model.window.empty() ? 0 : model.window[i], heads.kv, heads.dim}].push_back(layer);
  }
  KvPlan plan{.range = range,
              .dtype = dtype,
              .groups = {},
              .places = std::vector<KvPlan::Place>(static_cast<std::size_t>(range.size()))};
  if (spec::is_encoder(model)) {
    by_kind.begin()->second.resize(
        1);  // Its layers have their keys and values in the same place, in turn.
  }
  for (const auto& [kind, layers] : by_kind) {
    const auto [window, kv_heads, head_dim] = kind;
    const auto split = memory::kv_groups({.layers = static_cast<std::int64_t>(layers.size()),
                                          .kv_heads = kv_heads,
                                          .head_dim = head_dim,
                                          .element_bytes = spec::kv_element_bytes(dtype),
                                          .scale_bytes = spec::kv_scale_bytes(dtype)},
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
  auto states = plan_states(model, range, page_bytes);
  if (!states) {
    return states.error();
  }
  plan.states = std::move(*states);
  for (const std::uint32_t blocks : plan.states.blocks_per_page) {
    plan.groups.push_back({.window = model.max_position,
                           .geometry = {.block_tokens = model.max_position,
                                        .blocks_per_page = blocks,
                                        .block_bytes = page_bytes / blocks}});
  }
  return plan;
}

std::int64_t least_block_tokens(const KvPlan& plan) {
  return std::ranges::min(
             plan.groups, {}, [](const KvGroupPlan& group) { return group.geometry.block_tokens; })
      .geometry.block_tokens;
}

}  // namespace

std::size_t KvPlan::position_bytes(std::int64_t layer) const {
  const memory::KvGeometry& geometry = groups[place(layer).group].geometry;
  return 2 * static_cast<std::size_t>(geometry.shape.kv_heads) *
         (geometry.token_stride() + geometry.shape.scale_bytes);
}

std::int64_t KvPlan::aligned_tokens() const {
  std::int64_t aligned = 1;
  for (std::size_t g = 0; g < kv_groups(); ++g) {
    aligned = std::lcm(aligned, groups[g].geometry.block_tokens);
  }
  return aligned;
}

std::int64_t KvPlan::state_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t g = kv_groups(); g < groups.size(); ++g) {
    bytes += groups[g].geometry.block_bytes;
  }
  return static_cast<std::int64_t>(bytes);
}

std::int64_t KvPlan::token_bytes() const {
  std::size_t bytes = 0;
  for (std::size_t g = 0; g < kv_groups(); ++g) {
    bytes += groups[g].geometry.token_bytes();
  }
  return static_cast<std::int64_t>(bytes);
}

Result<KvPlan> plan_kv(const spec::ModelSpec& model,
                       LayerRange range,
                       spec::DType weights,
                       std::size_t page_bytes) {
  auto plan = lay_out(model, range, weights, page_bytes);
  const std::int64_t stages = spec::stages_of(model);
  if (!plan || stages == 1) {
    return plan;
  }
  std::int64_t common = least_block_tokens(*plan);
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const auto other = lay_out(model, spec::layers_of(model, stage), weights, page_bytes);
    if (!other) {
      return other.error();
    }
    common = std::min(common, least_block_tokens(*other));
  }
  for (KvGroupPlan& group : plan->groups) {
    group.geometry.block_tokens = common;
  }
  return plan;
}

}  // namespace heddle::engine
