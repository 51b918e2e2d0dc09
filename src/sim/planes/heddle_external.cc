#include <algorithm>
#include <tuple>

#include "sim/planes/heddle.h"

namespace heddle::sim {
namespace {

/// KV pool of an external engine, over all its GPUs.
constexpr double kPoolBytes = 5e9;

std::int64_t pool_pages(const World& world, ModelId model) {
  return world.pages(kPoolBytes / static_cast<double>(world.model(model).tp));
}

}  // namespace

/// From a suspended engine in host memory to one that takes requests.
Duration HeddlePlane::swap_in_time(const World& world, ModelId model, GpuId gpu) {
  const StartupProfile& costs = world.host_spec(gpu).startup;
  return from_seconds(costs.swap_fixed +
                      costs.swap_per_byte * static_cast<double>(world.model(model).weight_bytes()));
}

/// An external engine returns as a whole, with its pool, to the GPUs of one server where
/// least is lost.
void HeddlePlane::propose_swap_in(const World& world,
                                  const LiveRequest& request,
                                  std::span<const HostId> hosts,
                                  const StartTerms& terms,
                                  Options& options) {
  const ModelId model = request.model;
  const std::int64_t pool = pool_pages(world, model);
  const std::int64_t need = world.weight_pages(model) + world.overhead_pages(model) + pool;
  const auto tp = static_cast<std::size_t>(world.model(model).tp);
  std::vector<GpuId> best;
  std::vector<ReplicaId> dies;
  for (const HostId host : hosts) {
    std::vector<std::tuple<double, GpuId, std::vector<ReplicaId>>> here;
    for (const GpuId gpu : world.host(host).gpus) {
      if (auto out = pool_device(world, gpu, model) ? victims_on(world, gpu, need) : std::nullopt) {
        here.emplace_back(lost_by(world, *out), gpu, std::move(*out));
      }
    }
    if (here.size() < tp) {
      continue;
    }
    std::sort(here.begin(), here.end());
    std::vector<GpuId> gpus;
    std::set<ReplicaId> out;
    for (std::size_t i = 0; i < tp; ++i) {
      gpus.push_back(std::get<1>(here[i]));
      out.insert(std::get<2>(here[i]).begin(), std::get<2>(here[i]).end());
    }
    const std::vector<ReplicaId> all(out.begin(), out.end());
    if (best.empty() || lost_by(world, all) < lost_by(world, dies)) {
      best = std::move(gpus);
      dies = all;
    }
  }
  if (best.empty()) {
    return;
  }
  std::sort(best.begin(), best.end());
  StartSpec spec = resume(world, model, best, swap_in_time(world, model, best[0]));
  spec.kv_limit = pool;
  const bool suspended = spec.source == WeightSource::kNothing;
  const Duration ready =
      unmapping(world, dies) + spec.before + spec.after +
      (suspended ? Duration{} : load_time(world, model, best[0], /*cached=*/false));
  options.plans.push_back(swap_in_plan(best, ready, lost_by(world, dies), terms));
  options.planned_actions.push_back({.kind = PlannedAction::Kind::kStart,
                                     .spec = std::move(spec),
                                     .dies = dies,
                                     .reason = Reason::kSwap});
}

}  // namespace heddle::sim
