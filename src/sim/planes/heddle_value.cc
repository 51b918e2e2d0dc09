#include <algorithm>

#include "policy/value.h"
#include "sim/planes/heddle.h"

namespace heddle::sim {
namespace {

using namespace std::chrono_literals;

/// How far ahead the need of what may be lost is judged.
constexpr Duration kHorizon = 60s;
/// An instance that has just been used is not idle yet.
constexpr Duration kSettle = 1s;
constexpr std::int64_t kResidence = 3;

}  // namespace

bool HeddlePlane::comes(const Replica& replica) {
  const bool loads =
      replica.state == ReplicaPhase::kWaiting || replica.state == ReplicaPhase::kLoading;
  return replica.state == ReplicaPhase::kStarting ||
         (loads && (replica.spec.serve || replica.attached));
}

bool HeddlePlane::dedicated(ModelId model) const {
  return runs_dedicated(models_[model.value()].model_class.present());
}

/// An external engine stays for three times as long as it took to come.
bool HeddlePlane::stayed(const World& world, const Replica& replica) {
  return !world.model(replica.model).external ||
         world.now() - replica.serving_since >=
             kResidence * swap_in_time(world, replica.model, replica.gpus[0]);
}

/// Whether a replica may be dropped for another: it waits for use, or has had none for a while.
bool HeddlePlane::may_go(const World& world, const Replica& replica) const {
  switch (replica.state) {
    case ReplicaPhase::kWarm:
      return true;
    case ReplicaPhase::kWaiting:
    case ReplicaPhase::kLoading:
      return !replica.spec.serve && !replica.attached;
    case ReplicaPhase::kServing:
      return replica.load() == 0 && stayed(world, replica) && gpu_queues_.queued(replica.id) == 0 &&
             replica.merging == 0 && world.now() >= replica.used + kSettle &&
             waiting_.empty(replica.model);
    default:
      return false;
  }
}

Duration HeddlePlane::load_time(const World& world, ModelId model, GpuId gpu, bool cached) {
  const LinkRates& links = world.host_spec(gpu).links;
  const auto bytes = static_cast<double>(world.model(model).weight_bytes());
  const auto tp = static_cast<double>(world.model(model).tp);
  const double copies =
      links.host_memory > 0 ? std::min(links.host_memory, links.pcie * tp) : links.pcie * tp;
  const double rate = !cached ? links.nic : tp < 2 && links.spread > 0 ? links.spread : copies;
  return from_seconds(bytes / std::max(1.0, rate));
}

/// What losing a replica is expected to cost: the seconds that it would save.
double HeddlePlane::worth_of(const World& world, const Replica& replica) const {
  const policy::DemandMeter& demand = models_[replica.model.value()].demand;
  const GpuId gpu = replica.gpus[0];
  const bool cached = world.cached(world.gpu(gpu).host, replica.model);
  const Duration idle = world.now() - demand.last_used();
  const Duration gap = std::max({Duration(1ms), from_seconds(demand.mean_gap()), idle});
  double needed = policy::needed_by_renewal(kHorizon, gap);
  if (demand.expected().error <= policy::kTrustedError) {
    const auto limit =
        static_cast<double>(world.model(replica.model).max_sequences) * policy::kScaleUpShare *
        static_cast<double>(count_replicas(
            world, replica.model, {ReplicaPhase::kServing, ReplicaPhase::kStarting}));
    needed = std::max(needed,
                      policy::needed_by_forecast(replica.serves() ? 0 : limit,
                                                 demand.expected().load.mean,
                                                 demand.expected().load.peak));
  }
  const Duration attach = from_seconds(world.host_spec(gpu).startup.attach);
  return policy::worth(
      {.needed = needed,
       .without = world.model(replica.model).external
                      ? swap_in_time(world, replica.model, gpu)
                      : load_time(world, replica.model, gpu, cached) + attach,
       .with = replica.serves() ? Duration{} : attach,
       .ttft = std::max<Duration>(1ms, world.model(replica.model).slo_ttft),
       .bytes = std::max<std::int64_t>(1, replica.stages[0].weight_pages * world.page_bytes())});
}

/// Until the pages of these are free.
Duration HeddlePlane::unmapping(const World& world, std::span<const ReplicaId> dies) {
  double longest = 0;
  for (const ReplicaId id : dies) {
    const Replica& replica = *world.replica(id);
    longest = std::max(longest,
                       world.host_spec(replica.gpus[0]).startup.map_per_page *
                           static_cast<double>(replica.stages[0].weight_pages));
  }
  return from_seconds(longest);
}

double HeddlePlane::lost_by(const World& world, std::span<const ReplicaId> dies) const {
  double lost = 0;
  for (const ReplicaId id : dies) {
    lost += worth_of(world, *world.replica(id));
  }
  return lost;
}

/// Who goes so that a GPU has `need_pages` free: what is worth least for its pages; nullopt where
/// that is not enough. Pages that are being unmapped count.
std::optional<std::vector<ReplicaId>> HeddlePlane::victims_on(const World& world,
                                                              GpuId gpu,
                                                              std::int64_t need_pages) const {
  std::int64_t missing = need_pages - world.free_pages(gpu);
  std::vector<std::pair<double, ReplicaId>> candidates;
  for (const ReplicaId id : world.gpu(gpu).replicas) {
    const Replica& replica = *world.replica(id);
    const std::int64_t pages = replica.stages[0].weight_pages;
    if (replica.state == ReplicaPhase::kEvicting) {
      missing -= pages;
    } else if (replica.state == ReplicaPhase::kWaiting) {
      missing += pages;
    } else if (may_go(world, replica)) {
      candidates.emplace_back(worth_of(world, replica) / static_cast<double>(pages), id);
    }
  }
  std::sort(candidates.begin(), candidates.end());
  std::vector<ReplicaId> dies;
  for (const auto& [density, id] : candidates) {
    if (missing <= 0) {
      break;
    }
    const Replica& replica = *world.replica(id);
    dies.push_back(id);
    missing -= replica.stages[0].weight_pages +
               (replica.overhead == LeaseId(0) ? 0 : world.overhead_pages(replica.model));
  }
  return missing <= 0 ? std::optional(dies) : std::nullopt;
}

}  // namespace heddle::sim
