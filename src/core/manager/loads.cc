#include "core/manager/loads.h"

#include <algorithm>
#include <utility>

#include "core/manager/groups.h"
#include "core/manager/models.h"
#include "core/manager/place_search.h"
#include "core/manager/start_plans.h"
#include "core/manager/value.h"
#include "core/manager/views.h"

namespace heddle::core::manager {

std::optional<ReplicaPlace> place_for_replica(const State& state, ModelId id) {
  ReplicaChoice choice = choose_replica(state, id);
  policy::Placement& placement = choice.placement;
  if (placement.outcome != policy::PlacementOutcome::kLoad) {
    return std::nullopt;
  }
  ReplicaPlace place{.device = placement.device,
                     .victims = std::move(placement.victims),
                     .load_takes = choice.load_takes};
  for (const ModelId victim : place.victims) {
    place.lost += worth(state, state.devices.at(place.device), victim);
  }
  return place;
}

void Loads::wanted(DeviceId device,
                   ModelId id,
                   const std::vector<ModelId>& victims,
                   std::string_view place,
                   const LoadPlan& plan) {
  const ModelState& model = state_.models.at(id);
  hold({.model = id, .devices = {device}, .victims = victims});
  const std::string because = who_waits(model) + "; " + std::string(place) +
                              (victims.empty() ? "" : ": " + names(state_, victims));
  if (model.waiting.empty()) {
    residency_.load(device, id, victims, LoadReason::kOperator, because);
    return;
  }
  if (!load_known(model, state_.devices.at(device))) {
    residency_.load(device, id, victims, LoadReason::kRequest, because + plan.instead);
    return;
  }
  const Duration first_token = plan.first_token.value_or(
      load_time(state_, model, state_.devices.at(device)) + prompt_time(model));
  queues_.predict(
      id,
      {.kind = model.external() ? policy::PlanKind::kSwapIn : policy::PlanKind::kActivate,
       .device = device,
       .at = state_.now,
       .ttft = first_token});
  residency_.load(device,
                  id,
                  victims,
                  LoadReason::kRequest,
                  because + describe_first_token(first_token) + plan.instead,
                  first_token);
}

void Loads::stage(const ShardPlace& stage, DeviceId leader, const std::vector<ModelId>& victims) {
  hold({.model = stage.model, .victims = victims});  // All of the model comes there soon.
  for (const ModelId victim : victims) {
    residency_.evict(
        stage.device, victim, EvictMode::kWhenIdle, EvictionReason::kDisplaced, stage.model);
  }
  residency_.begin_load(stage.device,
                        stage.model,
                        LoadReason::kRequest,
                        {.leader = stage.device == leader ? std::nullopt : std::optional(leader)});
}

bool Loads::take_back(ModelId model) {
  for (const Spot& spot : state_.models.at(model).spots) {
    if (spot.instance->spare) {
      residency_.spare(spot.id, model, false);
      return true;
    }
  }
  return false;
}

bool Loads::replica(ModelId model,
                    const ReplicaPlace& place,
                    LoadReason why,
                    const std::string& because) {
  return replicas(model, {place}, why, because);
}

bool Loads::replicas(ModelId model,
                     const std::vector<ReplicaPlace>& places,
                     LoadReason why,
                     const std::string& because) {
  policy::Action action{.kind = policy::ActionKind::kScaleUp, .model = model};
  for (const ReplicaPlace& place : places) {
    action.devices.push_back(place.device);
    action.victims.insert(action.victims.end(), place.victims.begin(), place.victims.end());
  }
  if (!admits(action)) {
    return false;
  }
  for (const ReplicaPlace& place : places) {
    residency_.load(place.device, model, place.victims, why, because);
  }
  return true;
}

void Loads::hold(const policy::Action& action) {
  not_before_.hold(action,
                   state_.now + policy::hold_after(action.kind, state_.options.planner.period));
}

bool Loads::admits(const policy::Action& action) {
  return !policy::make_diff({&action, 1}, not_before_, state_.now, state_.options.planner.period)
              .actions.empty();
}

void Loads::expire() {
  not_before_.expire(state_.now);
}

}  // namespace heddle::core::manager
