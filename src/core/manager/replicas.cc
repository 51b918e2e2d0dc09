#include "core/manager/replicas.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/units.h"
#include "core/manager/models.h"
#include "core/manager/value.h"
#include "core/manager/views.h"
#include "policy/placement.h"

namespace heddle::core::manager {
namespace {

/// Since when a request that no instance bears has waited, on average.
Instant unborne_since(const State& state, const ModelState& model) {
  const Unborne& unborne = model.unborne;
  return unborne.requests == 0
             ? state.now
             : state.now - from_seconds(unborne.waited / static_cast<double>(unborne.requests));
}

/// Whether the model may have the block though somebody is there.
bool gives_way(const State& state, const ModelState& model, const policy::PlacementDevice& block) {
  std::int64_t queue = 0;
  for (const policy::ResidentView& resident : block.residents) {
    const ModelState& other = state.models.at(resident.model);
    if (other.external() || (other.grouped() && resident.queue > 0)) {
      return false;
    }
    queue += resident.queue;
  }
  return queue == 0 || queue < model.unborne.requests;
}

}  // namespace

std::optional<ReplicaPlace> block_for_replica(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  Places places = places_for(state, id, 0);
  std::erase_if(places.views, [&](const policy::PlacementDevice& block) {
    return !gives_way(state, model, block);
  });
  policy::Placement placement = policy::choose_placement(
      places.views,
      state.now,
      unborne_since(state, model),
      {.drain_after = state.options.drain_after, .load = places.load_takes});
  if (placement.outcome != policy::PlacementOutcome::kLoad &&
      placement.outcome != policy::PlacementOutcome::kDrain) {
    return std::nullopt;
  }
  const auto block = std::ranges::find(
      places.views, placement.device, [](const policy::PlacementDevice& each) { return each.id; });
  ReplicaPlace place{.device = placement.device,
                     .victims = std::move(placement.victims),
                     .load_takes = missing(state, id, placement.device)};
  for (const policy::ResidentView& resident : block->residents) {
    place.lost += resident.worth;
  }
  return place;
}

std::optional<ReplicaPlace> place_for_one_more(const State& state, ModelId id) {
  return state.models.at(id).sharded() ? block_for_replica(state, id)
                                       : place_for_replica(state, id);
}

bool add_replica(const Parts& core,
                 ModelId id,
                 const ReplicaPlace& place,
                 const std::string& because) {
  const ModelState& model = core.state.models.at(id);
  if (!model.sharded()) {
    return core.loads.replica(id, place, LoadReason::kLoad, because);
  }
  policy::Action action{.kind = policy::ActionKind::kScaleUp, .model = id};
  for (const ShardPlace& part : block(core.state, id, place.device)) {
    action.devices.push_back(part.device);
  }
  if (model.claim || !core.loads.admits(action)) {
    return false;
  }
  core.claims.claim(id, place.device, because);
  return true;
}

}  // namespace heddle::core::manager
