#include <algorithm>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "core/manager/value.h"
#include "core/manager/views.h"
#include "policy/kv_moves.h"
#include "policy/kv_pressure.h"

namespace heddle::core::manager {
namespace {

/// Periods for which the present demand is expected to last.
constexpr std::int64_t kDemandLasts = 60;

/// What a model wants of KV on a device, as balancing sees it.
policy::KvModel kv_model(const State& state,
                         const DeviceState& device,
                         ModelId id,
                         std::int64_t workspace) {
  const ModelState& model = state.models.at(id);
  const Instance& instance = device.instances.at(id);
  return {.model = id,
          .demand = kv_growth(state, id, device),
          .bytes = (pages_of(state, device, id, workspace) - instance.kv_pages) *
                   static_cast<std::int64_t>(device.config.page_bytes),
          .at = {device.config.id},
          .movable = !model.external() && !model.removed && !model.config.pin &&
                     model.spots.size() == 1 && instance.is<Serving>() && instance.complete};
}

/// Carries out a move off a device where requests wait for memory, unless it costs more than the
/// relief is worth for as long as the demand is expected to last: the time to load, and what the
/// victims are worth. Pressure alone hurts no request, and moving takes pages and the link.
void move_model(const Parts& core, const policy::KvMove& move) {
  const State& state = core.state;
  const DeviceState& source = state.devices.at(move.from);
  if (source.shortage.sequences == 0) {
    return;
  }
  const DeviceState& target = state.devices.at(move.to);
  const Duration load_takes = load_time(state, state.models.at(move.model), target);
  const policy::PlacementDevice there = view(state, target, move.model);
  const policy::Placement placement = policy::choose_placement(
      {&there, 1}, state.now, state.now, {.drain_after = state.options.drain_after});
  if (placement.outcome != policy::PlacementOutcome::kLoad) {
    return;
  }
  double lost = 0;
  for (const ModelId victim : placement.victims) {
    lost += worth(state, target, victim);
  }
  const double relief = move.gain * to_seconds(kDemandLasts * state.options.planner.period);
  if (relief <= to_seconds(load_takes) + lost ||
      !core.loads.admits({.kind = policy::ActionKind::kMigrate,
                          .model = move.model,
                          .devices = {move.from, move.to},
                          .victims = placement.victims})) {
    return;
  }
  core.residency.move(move.from, move.model, move.to);
  core.residency.load(
      move.to,
      move.model,
      placement.victims,
      LoadReason::kPressure,
      "KV pressure falls by " + number(100 * move.gain) + " % against " + source.config.name);
}

}  // namespace

/// Idle models count for nothing: what they have can be had.
void balance(const Parts& core) {
  const State& state = core.state;
  if (std::ranges::none_of(state.index.lacking, [&](DeviceId id) {
        return state.devices.at(id).shortage.sequences > 0;
      })) {
    return;  // No move would be made.
  }
  std::vector<policy::KvModel> models;
  std::vector<policy::KvDevice> devices;
  double rate = kLoadRate;
  for (const auto& [device_id, device] : state.devices) {
    if (!device.up || device.leaving || device.plan || device.alone || device.claimed ||
        device.reserved || dedicated(state, device)) {
      continue;
    }
    const std::int64_t workspace = device.workspace;
    devices.push_back({.id = device_id,
                       .bytes = (device.config.pages - workspace) *
                                static_cast<std::int64_t>(device.config.page_bytes)});
    rate = device.load_rate > 0 ? std::min(rate, device.load_rate) : rate;
    for (const auto& [id, instance] : device.instances) {
      const ModelState& model = state.models.at(id);
      if (active(state, model) && !model.grouped()) {
        models.push_back(kv_model(state, device, id, workspace));
      }
    }
  }
  for (const policy::KvMove& move :
       policy::choose_kv_moves(models,
                               devices,
                               {.most = 1,
                                .horizon = kDemandLasts * state.options.planner.period,
                                .bytes_per_second = rate})) {
    move_model(core, move);
  }
}

void finish_moves(const Parts& core) {
  const State& state = core.state;
  each(state.index.watched, [&](const std::pair<DeviceId, ModelId>& spot) {
    const auto [device_id, id] = spot;
    const Instance& instance = state.devices.at(device_id).instances.at(id);
    if (!instance.moves_to) {
      return;
    }
    const auto& there = state.devices.at(*instance.moves_to).instances;
    const auto found = there.find(id);
    const bool comes = found != there.end() && found->second.is<Loading>();
    const bool serves = found != there.end() && found->second.is<Serving>();
    if (comes && instance.runs()) {
      return;
    }
    if (!serves || !instance.runs()) {
      core.residency.move(device_id, id, std::nullopt);
      return;
    }
    core.residency.spare(device_id, id, true);  // Sent nothing more while the other has room.
    if (idle(state, instance) && instance.is<Serving>()) {
      core.residency.move(device_id, id, std::nullopt);
      core.residency.evict(device_id, id, EvictMode::kWhenIdle, EvictionReason::kMoved);
    }
  });
}

}  // namespace heddle::core::manager
