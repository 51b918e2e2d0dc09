#include "sim/planes/static_partition.h"

#include <algorithm>

namespace heddle::sim {
namespace {

constexpr std::int64_t kTypicalTokens = 2048;

/// What a model weighs when KV is divided.
double kv_weight(const World& world, const PlaneInputs& inputs, ModelId model) {
  const double rate =
      model.value() < inputs.demand.size() ? inputs.demand[model.value()].requests_per_second : 0;
  return (rate + 1e-6) * static_cast<double>(typical_kv(world, inputs, model));
}

}  // namespace

std::int64_t typical_kv(const World& world, const PlaneInputs& inputs, ModelId model) {
  std::int64_t tokens = kTypicalTokens;
  if (model.value() < inputs.demand.size()) {
    const OfflineDemand& demand = inputs.demand[model.value()];
    tokens =
        std::max(tokens, static_cast<std::int64_t>(demand.input_tokens + demand.output_tokens));
  }
  return std::max<std::int64_t>(1, world.kv_pages(model, tokens));
}

std::vector<std::int64_t> divide_kv(const World& world,
                                    const PlaneInputs& inputs,
                                    const std::vector<std::vector<GpuId>>& placed) {
  std::vector<std::int64_t> rest;
  std::vector<double> weight(world.gpus().size(), 0);
  for (const Gpu& gpu : world.gpus()) {
    rest.push_back(gpu.pages);
  }
  for (std::size_t i = 0; i < placed.size(); ++i) {
    const ModelId model(i);
    for (const GpuId gpu : placed[i]) {
      rest[gpu.value()] -= world.weight_pages(model) + world.overhead_pages(model);
      weight[gpu.value()] += kv_weight(world, inputs, model);
    }
  }
  std::vector<std::int64_t> limits(placed.size(), 0);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    std::int64_t least = INT64_MAX;
    for (const GpuId gpu : placed[i]) {
      const double share = kv_weight(world, inputs, ModelId(i)) / weight[gpu.value()];
      least = std::min(least,
                       static_cast<std::int64_t>(share * static_cast<double>(rest[gpu.value()])));
    }
    limits[i] = placed[i].empty() ? 0 : least;
  }
  return limits;
}

void StaticPartitionPlane::place(const World& world, Actions& actions) {
  std::vector<std::int64_t> least;
  for (std::size_t i = 0; i < world.models().size(); ++i) {
    least.push_back(typical_kv(world, inputs_, ModelId(i)));
  }
  const std::vector<std::vector<GpuId>> placed = place_by_memory(world, least);
  const std::vector<std::int64_t> limits = divide_kv(world, inputs_, placed);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    if (placed[i].empty()) {
      continue;
    }
    const ModelId model(i);
    StartSpec spec = whole(world, model, placed[i]);
    spec.kv_limit = limits[i];
    if (mig_) {
      const std::int64_t pages =
          limits[i] + world.weight_pages(model) + world.overhead_pages(model);
      spec.compute_share =
          static_cast<double>(pages) / static_cast<double>(world.gpu(placed[i][0]).pages);
    }
    actions.start(placed_.emplace_back(spec), Reason::kStatic);
  }
}

void StaticPartitionPlane::decide(const Notice& notice, const World& world, Actions& actions) {
  if (notice.kind == NoticeKind::kStart) {
    return place(world, actions);
  }
  serve_in_place(notice, world, actions, queues_, placed_);
}

}  // namespace heddle::sim
