#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "core/manager/start_plans.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

using namespace std::chrono_literals;

/// From the first configuration on, devices are expected to start within this.
constexpr Duration kDevicesStart = 10s;

/// What is loaded for no request yet waits until all devices have started that may hold it, or the
/// one that starts first would get whatever is to be there from the beginning.
bool waits_for_devices(const State& state, const ModelState& model) {
  return model.waiting.empty() && model.frozen == 0 && state.now < state.began + kDevicesStart &&
         std::ranges::any_of(
             model.footprints.seats(),
             [&](const Seat& seat) {
               return state.devices.at(seat.device).epoch == WorkerEpoch{};
             });
}

/// Since when requests stand still with their external engine.
Instant frozen_since(const State& state, ModelId model) {
  Instant since = Instant::max();
  for (const Spot& spot : state.models.at(model).spots) {
    if (spot.instance->is<Suspended>()) {
      for (const RequestId request : spot.instance->in_flight) {
        since = std::min(since, state.requests.at(request).arrived);
      }
    }
  }
  return since;
}

/// When the first request, or operator, began to wait for the model; of those that had a turn, when
/// that was over.
Instant waiting_since(const State& state, ModelId id, const ModelState& model) {
  Instant since = model.frozen > 0 ? frozen_since(state, id) : Instant::max();
  for (const auto& [key, request] : model.waiting) {
    since = std::min(since, std::max(state.requests.at(request).arrived, model.turn_ended));
  }
  for (const auto& [ticket, at] : model.loads_asked) {
    since = std::min(since, at);
  }
  return since;
}

/// Among blocks that can be claimed and are kept for no model that has waited for longer, the one
/// whose models have the fewest requests.
std::optional<DeviceId> least_busy(const State& state,
                                   const std::vector<policy::PlacementDevice>& views,
                                   ModelId model,
                                   Instant since) {
  std::optional<std::pair<std::int64_t, DeviceId>> best;
  for (const policy::PlacementDevice& view : views) {
    std::int64_t queue = 0;
    bool engines = false;
    for (const policy::ResidentView& resident : view.residents) {
      queue += resident.queue;
      // A suspended engine may hold pages for as long as it has requests.
      engines = engines || state.models.at(resident.model).external();
    }
    const bool kept = view.reserved && view.reserved->since <= since;
    if (!engines && !kept && claimable(state, model, view.id)) {
      const std::pair offer(queue, view.id);
      best = best ? std::min(*best, offer) : offer;
    }
  }
  return best ? std::optional(best->second) : std::nullopt;
}

/// Says why a model is not brought in at once, when that changes.
void note_waiting(const Parts& core, ModelId id, const policy::Placement& placement) {
  const bool waits = placement.outcome == policy::PlacementOutcome::kWait;
  if (core.queues.waits_for(id, waits ? std::optional(placement.reason) : std::nullopt) && waits) {
    const std::string when =
        placement.retry_at
            ? "; busy models may go in " + format_duration(*placement.retry_at - core.state.now)
            : "";
    core.out.note(DecisionKind::kWait,
                  id,
                  std::nullopt,
                  std::string(policy::reason_name(placement.reason)) + when);
  }
}

/// Why no device can ever hold the model as things are.
std::string why_never(const State& state, const ModelState& model, policy::PlacementReason reason) {
  if (model.sharded()) {
    return too_large(state, model) + "; it is sharded over " +
           std::to_string(shards_of(model).size() + 1) + " devices, which it must have to itself";
  }
  return too_large(state, model) + (reason != policy::PlacementReason::kPinned ? ""
                                    : state.options.planner.evict
                                        ? "; pinned models leave too few of them"
                                        : "; those that are there, and stay, leave too few");
}

/// False: it can be nowhere, and the requests that want that fail.
bool may_come(const Parts& core,
              ModelId id,
              const policy::Placement& placement,
              std::int64_t fits_elsewhere) {
  note_waiting(core, id, placement);
  if (placement.outcome == policy::PlacementOutcome::kWait && placement.retry_at) {
    core.out.wake_by(*placement.retry_at);
  }
  if (placement.outcome != policy::PlacementOutcome::kNever) {
    return true;
  }
  const ModelState& model = core.state.models.at(id);
  core.attempts.give_up(
      id, {Code::kUnavailable, why_never(core.state, model, placement.reason)}, fits_elsewhere);
  return false;
}

/// Loads the model where its victims can go at once; else drains them, if anything can be done.
void take(const Parts& core, ModelId id, const StartChoice& choice) {
  const policy::Placement& placement = choice.placement;
  if (placement.outcome != policy::PlacementOutcome::kLoad &&
      placement.outcome != policy::PlacementOutcome::kDrain) {
    return;
  }
  const DeviceState& there = core.state.devices.at(placement.device);
  const bool slow =
      std::any_of(placement.victims.begin(), placement.victims.end(), [&](ModelId victim) {
        const ModelState& model = core.state.models.at(victim);
        return model.external() || (model.grouped() && there.instances.contains(victim) &&
                                    staged(there, victim) == nullptr);
      });
  const bool several = on_several(core.state.models.at(id));
  std::string instead = describe_others(core.state, id, choice);
  if (placement.outcome == policy::PlacementOutcome::kLoad && !slow && !several) {
    core.loads.wanted(placement.device,
                      id,
                      placement.victims,
                      policy::reason_name(placement.reason),
                      {.instead = std::move(instead)});
    return;
  }
  core.plans.begin(placement.device, id, placement.victims, std::move(instead));
  core.plans.advance();  // Those that are idle need no draining, though leaving may take its time.
}

/// Where a sharded model goes. A model that has waited long enough claims the block with the least
/// to do though it cannot be had at once: of several devices, one would always be busy.
std::optional<DeviceId> block_to_claim(const Parts& core,
                                       ModelId id,
                                       const StartChoice& choice,
                                       Instant since) {
  const policy::Placement& placement = choice.placement;
  if (placement.outcome == policy::PlacementOutcome::kLoad ||
      placement.outcome == policy::PlacementOutcome::kDrain) {
    return placement.device;
  }
  const Instant patience = since + core.state.options.drain_after;
  if (placement.outcome != policy::PlacementOutcome::kWait) {
    return std::nullopt;
  }
  core.out.wake_by(patience);
  return core.state.now >= patience ? least_busy(core.state, choice.views, id, since)
                                    : std::nullopt;
}

/// Brings in all stages side by side.
void start_in_stages(const Parts& core, ModelId id, const StartChoice& choice) {
  const CutStart& start = *choice.stages;
  const ShardPlace leader = start.places.front().stage;
  std::vector<ShardPlace> followers;
  for (std::size_t i = 1; i < start.places.size(); ++i) {
    followers.push_back(start.places[i].stage);
  }
  core.out.note(DecisionKind::kLoad,
                id,
                leader.device,
                start.because + describe_others(core.state, id, choice),
                {},
                start.ttft);
  core.queues.predict(id,
                      {.kind = policy::PlanKind::kStages,
                       .device = leader.device,
                       .at = core.state.now,
                       .ttft = start.ttft});
  core.catalog.choose_block(leader.model, leader.device, std::move(followers));
  for (const CutStart::Place& place : start.places) {
    core.loads.stage(place.stage, leader.device, place.victims);
  }
}

/// Devices that rest may have the model later.
void wake_when_rested(const Parts& core, ModelId id, const StartChoice& choice) {
  const State& state = core.state;
  if (choice.paused_until) {
    core.out.wake_by(*choice.paused_until);
  }
  const bool sharded = state.models.at(id).sharded();
  for (const policy::PlacementDevice& place : choice.views) {
    if (!sharded) {
      core.out.wake_by(state.devices.at(place.id).paused_until);
      continue;
    }
    for (const ShardPlace& part : block(state, id, place.id)) {
      core.out.wake_by(state.devices.at(part.device).paused_until);
    }
  }
}

/// A model that has borne with others for as long as is asked of it, and cannot be had yet, has the
/// devices kept for it where it can be soonest: else those who come later and take less would go
/// first for ever (SwapServeLLM's reservations).
void keep_devices(const Parts& core, ModelId id, const StartChoice& choice, Instant since) {
  const State& state = core.state;
  const Instant patience = since + state.options.drain_after;
  if (choice.placement.outcome != policy::PlacementOutcome::kWait || !choice.plans.best ||
      state.models.at(id).claim) {
    return;
  }
  if (state.now < patience) {
    core.out.wake_by(patience);
    return;
  }
  const std::vector<ShardPlace> places = block(state, id, choice.plans.best->where);
  const bool there = std::ranges::all_of(places, [&](const ShardPlace& place) {
    const DeviceState& device = state.devices.at(place.device);
    return device.up && !device.leaving;
  });
  if (there) {
    core.reservations.keep(id, since, places, choice.plans.best->not_before.value_or(Instant{}));
  }
}

/// Carries out the best plan for the model, as far as that can begin.
void place_one(const Parts& core, ModelId id, Instant since) {
  const ModelState& model = core.state.models.at(id);
  const StartChoice choice = choose_start(core.state, core.search, id, since);
  if (choice.stages) {
    start_in_stages(core, id, choice);
    return;
  }
  wake_when_rested(core, id, choice);
  if (!may_come(core, id, choice.placement, choice.fits_elsewhere)) {
    if (choice.fits_elsewhere > 0 && model.wanted()) {
      place_one(core, id, since);  // The shorter requests.
    }
  } else if (model.sharded()) {
    if (const auto leader = block_to_claim(core, id, choice, since)) {
      core.claims.claim(id, *leader, {}, describe_others(core.state, id, choice));
    }
    keep_devices(core, id, choice, since);
  } else {
    take(core, id, choice);
    if (model.external()) {
      keep_devices(core, id, choice, since);
    }
  }
}

}  // namespace

void place(const Parts& core) {
  const State& state = core.state;
  core.search.prune();
  std::vector<std::pair<Instant, ModelId>> wanted;
  for (const ModelId id : state.index.unplaced) {
    const ModelState& model = state.models.at(id);
    if (state.now < model.retry_at) {
      core.out.wake_by(model.retry_at);
    } else if (waits_for_devices(state, model)) {
      core.out.wake_by(state.began + kDevicesStart);
    } else {
      wanted.emplace_back(waiting_since(state, id, model), id);
    }
  }
  std::sort(wanted.begin(), wanted.end());
  for (const auto& [since, id] : wanted) {
    place_one(core, id, since);
  }
  core.reservations.settle();
}

}  // namespace heddle::core::manager
