#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/manager/index.h"
#include "core/manager/loads.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/views.h"
#include "policy/autoscale.h"
#include "policy/consolidation.h"

namespace heddle::core::manager {
namespace {

/// Whether the whole model is on its way to a device, or on one.
bool is_somewhere(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  return !model.spots.empty() || !model.plans.empty();
}

/// The whole model on that device, where idle models make room for it beside what runs.
std::optional<ReplicaPlace> place_beside(const State& state, ModelId id, DeviceId device) {
  if (!state.models.at(id).footprints.contains(device)) {
    return std::nullopt;
  }
  const policy::PlacementDevice there = view(state, state.devices.at(device), id);
  policy::Placement placement = policy::choose_placement(
      {&there, 1}, state.now, state.now, {.drain_after = state.options.drain_after});
  const bool alone = std::ranges::none_of(placement.victims, [&](ModelId victim) {
    return state.models.at(victim).grouped() || state.models.at(victim).external();
  });
  if (placement.outcome != policy::PlacementOutcome::kLoad || !alone) {
    return std::nullopt;
  }
  return ReplicaPlace{.device = device, .victims = std::move(placement.victims)};
}

/// How many devices should have the whole model, for the load that it has.
std::int64_t wanted(const Parts& core, ModelId id) {
  const policy::Scaling scaling = policy::choose_scaling(
      core.demand.load(id), core.state.models.at(id).config.batch, {}, 0, core.state.now, {});
  return core.state.options.planner.replicas ? std::max<std::int64_t>(scaling.start, 1) : 1;
}

/// Which devices of its stages have the whole model next (HydraServe's consolidation, down to one
/// or up to several); where none of them can, any device where it drives nothing out.
std::vector<ReplicaPlace> survivors(const Parts& core, ModelId id, ModelId cut, DeviceId leader) {
  std::map<DeviceId, ReplicaPlace> places;
  std::vector<policy::GroupMember> members;
  for (const ShardPlace& stage : block(core.state, cut, leader)) {
    auto place = place_beside(core.state, id, stage.device);
    members.push_back({.device = stage.device, .full = place.has_value(), .free_bytes = -1});
    if (place) {
      places.emplace(stage.device, std::move(*place));
    }
  }
  const policy::Consolidation chosen = policy::choose_consolidation(
      {.weights = static_cast<std::int64_t>(core.state.models.at(id).config.image_bytes),
       .wanted = wanted(core, id),
       .members = members});
  std::vector<ReplicaPlace> found;
  for (const policy::Survivor& survivor : chosen.survivors) {
    found.push_back(std::move(places.at(survivor.device)));
  }
  if (found.empty()) {
    std::optional<ReplicaPlace> place = place_for_replica(core.state, id);
    if (place && place->victims.empty()) {
      found.push_back(std::move(*place));
    }
  }
  return found;
}

void gather(const Parts& core, ModelId id, ModelId cut, DeviceId leader) {
  const State& state = core.state;
  const ModelState& model = state.models.at(id);
  if (model.removed || !model.unloads_asked.empty() || state.now < model.retry_at) {
    core.out.wake_by(model.retry_at);
    return;
  }
  const std::vector<ReplicaPlace> places = survivors(core, id, cut, leader);
  const auto lacks =
      places.empty() ? std::optional(policy::PlacementReason::kTooLarge) : std::nullopt;
  if (core.queues.waits_for(id, lacks) && lacks) {
    core.out.note(DecisionKind::kWait,
                  id,
                  leader,
                  "it stays in its stages: no device has room for all of it beside what runs");
  }
  const std::string why =
      "it runs in " + std::to_string(block(state, cut, leader).size()) + " stages until it is here";
  if (!places.empty() && !core.loads.replicas(id, places, LoadReason::kGather, why)) {
    core.out.wake_by(state.now + state.options.planner.period);
  }
}

void tend_cut(const Parts& core, ModelId id, ModelId cut, DeviceId leader) {
  const State& state = core.state;
  const auto& instances = state.devices.at(leader).instances;
  const auto found = instances.find(cut);
  if (found == instances.end() || !found->second.runs()) {
    return;
  }
  if (!serves_complete(state, id)) {
    if (!is_somewhere(state, id)) {
      gather(core, id, cut, leader);
    }
    return;
  }
  core.residency.drain(leader, cut);
  const auto whole = instances.find(id);
  if (whole != instances.end() && whole->second.is<Serving>() && whole->second.complete &&
      !found->second.in_flight.empty()) {
    core.queues.gather(leader, cut, id);
  }
  if (idle(state, found->second)) {
    core.residency.evict(leader, cut, EvictMode::kWhenIdle, EvictionReason::kMoved);
  }
}

}  // namespace

void consolidate(const Parts& core) {
  each(core.state.index.in_stages, [&](ModelId id) {
    for (const ModelId cut : core.state.models.at(id).cuts) {
      for (const auto& [leader, followers] : core.state.models.at(cut).config.groups) {
        tend_cut(core, id, cut, leader);
      }
    }
  });
}

}  // namespace heddle::core::manager
