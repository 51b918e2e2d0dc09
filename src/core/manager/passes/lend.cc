#include <algorithm>
#include <string>
#include <vector>

#include "base/units.h"
#include "core/manager/further_plans.h"
#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/passes/passes.h"
#include "core/manager/value.h"
#include "core/manager/views.h"
#include "policy/lending.h"

namespace heddle::core::manager {
namespace {

/// Where PlannerOptions::value is off, models are idle after so many times their load time (Prism's
/// rule).
constexpr std::int64_t kLoadsIdle = 5;

/// The models of a device that could lend. None while one is being evicted: what that frees comes
/// first.
std::vector<policy::LenderCandidate> idle_models(const Parts& core,
                                                 const DeviceState& device,
                                                 ModelId lacking) {
  const State& state = core.state;
  std::vector<policy::LenderCandidate> idle;
  const std::int64_t workspace = workspace_of(state, device, lacking);
  for (const auto& [id, instance] : device.instances) {
    const ModelId all = whole(state, id);
    const ModelState& model = state.models.at(all);
    if (instance.is<Evicting>()) {
      return {};
    }
    const Instant last_used = std::max(model.last_used, instance.load_began);
    const Instant rests = last_used + kLoadsIdle * load_time(state, model, device);
    const bool resident = instance.staged() ? instance.is<Member>() : instance.is<Serving>();
    // Of engines those that share memory; the others only make room for loads.
    const bool lends = resident && (!model.external() || instance.elastic) &&
                       !busy(state, all, instance) && !stays(state, model) &&
                       state.now >= instance.serving_since + model.config.min_residence;
    if (lends && (state.options.planner.value || state.now >= rests)) {
      idle.push_back({.model = id,
                      .worth = worth(state, device, id),
                      .pages = pages_of(state, device, id, workspace),
                      .last_used = last_used});
    } else if (lends) {
      core.out.wake_by(rests);
    }
  }
  return idle;
}

/// Has idle groups of the device step back, as what their KV has is lacking elsewhere. True where
/// some do, or are about to: what that frees comes first.
bool free_shares(const Parts& core, const DeviceState& device, ModelId lacking) {
  if (steps_back(core.state, device)) {
    return true;
  }
  const std::vector<ModelId> idle = idle_shares(core.state, device);
  for (const ModelId shard : idle) {
    core.residency.step_back(device.config.id, shard, lacking);
  }
  return !idle.empty();
}

/// Where sequences have waited for as much as it costs, and no device that their model has, or is
/// about to have, has room for them, it gets another.
void relieve(const Parts& core, const DeviceState& device) {
  const State& state = core.state;
  const Shortage& shortage = device.shortage;
  const auto found = state.models.find(shortage.model);
  if (found == state.models.end() || found->second.external() || found->second.grouped() ||
      found->second.removed) {
    return;
  }
  const bool coming = std::ranges::any_of(found->second.spots, [](const Spot& spot) {
    return !spot.instance->complete || spot.device->shortage.sequences == 0;
  });
  const auto place = coming ? std::nullopt : place_for_replica(state, found->first);
  if (!place) {
    return;
  }
  const double cost = to_seconds(place->load_takes) + place->lost;
  if (shortage.waited < cost) {
    core.out.wake_by(state.now + policy::until_paid(cost, shortage.waited, shortage.sequences));
    return;
  }
  if (core.loads.replica(
          found->first,
          *place,
          LoadReason::kPressure,
          std::to_string(shortage.sequences) + " of the requests at " + device.config.name +
              " wait for memory" +
              describe_beside(state, found->first, policy::PlanKind::kActivate, place->device))) {
    core.shortages.pay(device.config.id, cost);
  }
}

/// What is freed on one device of a group is of use to it where the others have as much.
void owe_group(const Parts& core, const DeviceState& leader) {
  const Shortage& shortage = leader.shortage;
  for (const ShardPlace& place : block(core.state, shortage.model, leader.config.id)) {
    core.out.wake_by(core.shortages.owe(place.device, shortage.model, shortage.pages));
  }
}

/// A group lacks memory on each of its devices where so much is not free.
void lend_to_group(const Parts& core, const DeviceState& leader) {
  const State& state = core.state;
  const Shortage& shortage = leader.shortage;
  for (const ShardPlace& place : block(state, shortage.model, leader.config.id)) {
    const DeviceState& device = state.devices.at(place.device);
    const std::int64_t lacks = shortage.pages - device.usage.free;
    if (lacks <= 0 || free_shares(core, device, shortage.model)) {
      continue;
    }
    const policy::Lending lending = policy::choose_lenders(
        idle_models(core, device, place.model), lacks, shortage.waited, shortage.sequences);
    if (lending.next) {
      core.out.wake_by(state.now + *lending.next);
    }
    core.shortages.pay(leader.config.id, lending.paid);
    if (!lending.lenders.empty()) {
      owe_group(core, leader);
    }
    for (const ModelId lender : lending.lenders) {
      core.residency.evict(
          place.device, lender, EvictMode::kWhenIdle, EvictionReason::kOutgrown, shortage.model);
    }
  }
}

void lend_on(const Parts& core, const DeviceState& device) {
  const Shortage& shortage = device.shortage;
  const auto found = core.state.models.find(shortage.model);
  if (found != core.state.models.end() && found->second.config.shares) {
    lend_to_group(core, device);
    return;
  }
  if (free_shares(core, device, shortage.model)) {
    return;
  }
  const policy::Lending lending = policy::choose_lenders(idle_models(core, device, shortage.model),
                                                         shortage.pages,
                                                         shortage.waited,
                                                         shortage.sequences);
  if (lending.next) {
    core.out.wake_by(core.state.now + *lending.next);
  }
  core.shortages.pay(device.config.id, lending.paid);
  if (!lending.lenders.empty()) {
    core.out.wake_by(core.shortages.owe(device.config.id, shortage.model, shortage.pages));
  }
  for (const ModelId lender : lending.lenders) {
    const bool engine = core.state.models.at(lender).external();
    core.residency.evict(device.config.id,
                         lender,
                         EvictMode::kWhenIdle,
                         EvictionReason::kOutgrown,
                         shortage.model,
                         engine ? pages_of(core.state, device, lender, 0) : 0);
  }
  if (lending.lenders.empty() && core.state.options.planner.pressure) {
    relieve(core, device);
  }
}

/// Has requests that wait for memory go where their model has some, as many as there is room for.
/// Once a period, so that what they take there is seen before more follow.
void recall_from(const Parts& core, const DeviceState& device) {
  const State& state = core.state;
  const Shortage& shortage = device.shortage;
  const auto found = state.models.find(shortage.model);
  if (!device.up || shortage.sequences == 0 || state.now < shortage.recall_at ||
      found == state.models.end() || found->second.grouped() || found->second.external()) {
    return;
  }
  const auto& [id, model] = *found;
  const std::vector<DeviceId> places = serving_places(state, id);
  if (places.empty() || places.front() == device.config.id) {
    return;
  }
  const DeviceState& there = state.devices.at(places.front());
  const Instance& instance = there.instances.at(id);
  const std::int64_t workspace = workspace_of(state, there, id);
  const std::int64_t most = policy::recallable(shortage.sequences,
                                               shortage.pages,
                                               free_pages(state, there, workspace) - workspace,
                                               model.config.batch - std::ssize(instance.in_flight));
  if (there.shortage.sequences == 0 && instance.complete && most > 0) {
    core.shortages.recalled(device.config.id, state.now + state.options.planner.period);
    core.out.act(TellWorker{.device = device.config.id,
                            .epoch = device.epoch,
                            .message = RecallRequests{.model = id, .most = most}});
  }
}

}  // namespace

void recall(const Parts& core) {
  if (!core.state.options.planner.pressure) {
    return;
  }
  each(core.state.index.lacking,
       [&](DeviceId id) { recall_from(core, core.state.devices.at(id)); });
}

void lend(const Parts& core) {
  if (core.state.drain_deadline) {
    return;
  }
  each(core.state.index.lacking, [&](DeviceId id) {
    const DeviceState& device = core.state.devices.at(id);
    core.shortages.count(id);
    if (device.up && !device.plan && device.shortage.pages > 0) {
      lend_on(core, device);
    }
  });
}

}  // namespace heddle::core::manager
