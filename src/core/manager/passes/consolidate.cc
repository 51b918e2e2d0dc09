#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/manager/loads.h"
#include "core/manager/models.h"
#include "core/manager/passes/passes.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

/// Whether the whole model is on its way to a device, or on one.
bool is_somewhere(const State& state, ModelId id) {
  for (const auto& [device_id, device] : state.devices) {
    if (device.instances.contains(id) || (device.plan && device.plan->model == id)) {
      return true;
    }
  }
  return false;
}

/// Where the whole model goes beside its stages: to the first of them, where it can be there with
/// the weights of that and idle models make room; else to any device where it drives nothing out.
std::optional<ReplicaPlace> place_for_whole(const State& state, ModelId id, DeviceId leader) {
  if (state.models.at(id).config.footprints.contains(leader)) {
    const policy::PlacementDevice first = view(state, state.devices.at(leader), id);
    policy::Placement placement = policy::choose_placement(
        {&first, 1}, state.now, state.now, {.drain_after = state.options.drain_after});
    const bool alone = std::ranges::none_of(placement.victims, [&](ModelId victim) {
      return state.models.at(victim).grouped() || state.models.at(victim).external();
    });
    if (placement.outcome == policy::PlacementOutcome::kLoad && alone) {
      return ReplicaPlace{.device = leader, .victims = std::move(placement.victims)};
    }
  }
  std::optional<ReplicaPlace> place = place_for_replica(state, id);
  return place && place->victims.empty() ? place : std::nullopt;
}

void gather(const Parts& core, ModelId id, ModelId cut, DeviceId leader) {
  const State& state = core.state;
  const ModelState& model = state.models.at(id);
  if (model.removed || !model.unloads_asked.empty() || state.now < model.retry_at) {
    core.out.wake_by(model.retry_at);
    return;
  }
  const auto place = place_for_whole(state, id, leader);
  const auto lacks = place ? std::nullopt : std::optional(policy::PlacementReason::kTooLarge);
  if (core.queues.waits_for(id, lacks) && lacks) {
    core.out.note(DecisionKind::kWait,
                  id,
                  leader,
                  "it stays in its stages: no device has room for all of it beside what runs");
  }
  const auto why =
      "it runs in " + std::to_string(block(state, cut, leader).size()) + " stages until it is here";
  if (place && !core.loads.replica(id, *place, LoadReason::kGather, why)) {
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
  if (found->second.in_flight.empty()) {
    core.residency.evict(leader, cut, EvictMode::kWhenIdle, EvictionReason::kMoved);
  }
}

}  // namespace

void consolidate(const Parts& core) {
  for (const auto& [id, model] : core.state.models) {
    for (const ModelId cut : model.cuts) {
      for (const auto& [leader, followers] : core.state.models.at(cut).config.groups) {
        tend_cut(core, id, cut, leader);
      }
    }
  }
}

}  // namespace heddle::core::manager
