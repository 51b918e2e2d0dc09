#include "core/manager/status.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

DemandStatus demand_status(const ModelState& model) {
  const policy::Forecast& expected = model.demand.expected();
  return {.expected_mean = expected.load.mean,
          .expected_peak = expected.load.peak,
          .error = std::isfinite(expected.error) ? std::optional(expected.error) : std::nullopt,
          .starts = model.starts,
          .wasted_bytes = model.wasted_bytes};
}

/// An engine that stands by is absent, whatever it holds.
core::Residency residency_of(const Instance& instance) {
  if (instance.is<Loading>()) {
    return core::Residency::kLoading;
  }
  if (instance.is<Serving>()) {
    return instance.in_flight.empty() ? core::Residency::kWarm : core::Residency::kServing;
  }
  if (instance.is<Suspended>()) {
    return core::Residency::kAbsent;
  }
  if (instance.is<Member>() && instance.staged()) {
    return instance.complete ? core::Residency::kWarm : core::Residency::kLoading;
  }
  return core::Residency::kDraining;
}

/// Where the model is, and what it has to do there.
void add_instances(const State& state, ModelId id, ModelStatus& status) {
  for (const Spot& spot : state.models.at(id).spots) {
    const DeviceId device_id = spot.id;
    const Instance& instance = *spot.instance;
    if (state.models.at(id).external() && instance.part().leader && !instance.is<Suspended>()) {
      status.peers.push_back(device_id);
      status.kv_pages += instance.kv_pages;
      continue;
    }
    if (instance.is<Suspended>()) {
      status.requests_waiting += std::ssize(instance.in_flight);
      continue;
    }
    core::Residency residency = residency_of(instance);
    if (instance.staged()) {
      const Gathered there = gathered(state, id, device_id);
      residency = there.complete < there.shards ? core::Residency::kLoading : residency;
    }
    if (!status.device || residency == core::Residency::kServing) {
      status.residency = residency;
      status.device = device_id;
    }
    status.kv_pages += instance.kv_pages;
    status.requests_running += std::ssize(instance.in_flight);
  }
}

/// The host that has most of its image; 0: none has any.
HostId best_host(const ModelState& model) {
  HostId best{};
  HostImage most;
  for (const auto& [host, image] : model.images) {
    if (std::pair(image.cached, image.bytes) > std::pair(most.cached, most.bytes)) {
      best = host;
      most = image;
    }
  }
  return best;
}

HostImage image_at(const ModelState& model, HostId host) {
  const auto found = model.images.find(host);
  return found == model.images.end() ? HostImage{} : found->second;
}

/// Its bytes are those of all its shards.
void add_shards(const State& state, const ModelState& model, ModelStatus& status) {
  if (!model.sharded()) {
    return;
  }
  const bool placed = status.device && model.config.groups.contains(*status.device);
  const auto group =
      placed ? model.config.groups.find(*status.device) : model.config.groups.begin();
  for (const ShardPlace& place : group->second) {
    const ModelState& shard = state.models.at(place.model);
    status.image_bytes += shard.config.image_bytes;
    const bool together = host_of(place.device) == host_of(group->first);
    const HostImage image = image_at(shard, together ? best_host(model) : host_of(place.device));
    status.loaded_bytes += image.bytes;
    status.host_cached = status.host_cached && image.cached;
  }
  if (placed) {
    for (const ShardPlace& place : group->second) {
      status.peers.push_back(place.device);
    }
    for (const ShardPlace& place : group->second) {
      const auto& there = state.devices.at(place.device).instances;
      const auto member = there.find(place.model);
      status.kv_pages += member == there.end() ? 0 : member->second.kv_pages;
    }
  }
}

/// Where the model runs, or comes, in stages, and the whole of it is not there yet: what its cut
/// has is its own.
void tell_cut(const State& state, const ModelState& model, ModelStatus& status) {
  const bool serves = serves_complete(state, model.config.id);
  for (const ModelId id : model.cuts) {
    const std::vector<Spot>& spots = state.models.at(id).spots;
    if (serves || spots.empty()) {
      continue;
    }
    const DeviceId leader = spots.front().id;
    status.device.reset();
    status.peers.clear();
    status.loaded_bytes = status.image_bytes = 0;
    status.host_cached = false;
    for (const ShardPlace& place : block(state, id, leader)) {
      const ModelState& stage = state.models.at(place.model);
      status.image_bytes += stage.config.image_bytes;
      status.loaded_bytes += image_at(stage, host_of(place.device)).bytes;
      if (place.device != leader) {
        status.peers.push_back(place.device);
        const auto& instances = state.devices.at(place.device).instances;
        const auto member = instances.find(place.model);
        status.kv_pages += member == instances.end() ? 0 : member->second.kv_pages;
      }
    }
    add_instances(state, id, status);
  }
}

/// A further shard in its group is as rank 0 of that is, and has as much KV or its own.
std::vector<ResidentStatus> residents(const State& state, const DeviceState& device) {
  std::vector<ResidentStatus> residents;
  for (const auto& [id, here] : device.instances) {
    const ModelState& model = state.models.at(id);
    const Instance* leader = leading(state, device, id);
    const Instance& instance = leader == nullptr ? here : *leader;
    ResidentStatus status{.model = state.models.at(asked(state, id)).config.name,
                          .residency = residency_of(instance),
                          .external = model.external(),
                          .staged = here.staged(),
                          .requests_running = std::ssize(instance.in_flight)};
    const policy::Footprint* footprint = model.footprints.find(device.config.id);
    if (model.external()) {
      status.weights_pages = here.kv_pages;
    } else if (footprint != nullptr) {
      status.weights_pages = footprint->image_pages;
      status.kv_pages = here.kv_pages;
    }
    residents.push_back(std::move(status));
  }
  return residents;
}

std::vector<GuestStatus> guests(const State& state, const DeviceState& device) {
  std::vector<GuestStatus> guests;
  for (const auto& [id, loan] : device.guests) {
    const auto& instances = state.devices.at(loan.hot).instances;
    const auto instance = instances.find(id);
    const auto model = state.models.find(id);
    guests.push_back({.model = model == state.models.end() ? "" : model->second.config.name,
                      .hot = loan.hot,
                      .pages = loan.pages,
                      .in_use = instance == instances.end() ? 0 : instance->second.guest_pages,
                      .recalled = loan.recalled});
  }
  return guests;
}

/// As its worker counts it, and what it lends.
ledger::PoolUsage usage_of(const DeviceState& device) {
  ledger::PoolUsage usage = device.usage;
  for (const auto& [model, loan] : device.guests) {
    // The worker does not count what it lends.
    usage.total += loan.pages;
    ledger::Share& guests = usage.by_kind.at(static_cast<std::size_t>(ledger::LeaseKind::kKvGuest));
    guests.reserved += loan.pages;
    guests.held += loan.pages;
  }
  return usage;
}

void check_requests(const State& state) {
  std::map<ModelId, std::size_t> counted;
  for (const auto& [id, request] : state.requests) {
    const ModelState& model = state.models.at(request.model);
    ++counted[request.model];
    const QueueKey key{.priority = request.priority, .order = request.order};
    HEDDLE_CHECK(!request.device || !request.lost);
    HEDDLE_CHECK(model.waiting.contains(key) != (request.device || request.lost));
    if (request.device) {
      const Instance& instance = state.devices.at(*request.device).instances.at(request.as);
      HEDDLE_CHECK(asked(state, request.as) == request.model);
      HEDDLE_CHECK(request.need <= tokens_max(state, request.as, *request.device));
      HEDDLE_CHECK(instance.in_flight.contains(id));
    }
  }
  for (const auto& [id, model] : state.models) {
    HEDDLE_CHECK(model.requests == counted[id]);
    HEDDLE_CHECK(model.waiting.size() <= model.requests);
  }
}

}  // namespace

namespace {

/// When somebody used it last or, where that is later and nobody has used it since, it came by
/// forecast: how long it may be idle counts from then.
Instant last_used(const ModelState& model) {
  Instant last = model.last_used;
  for (const Spot& spot : model.spots) {
    const bool expected = spot.instance->why == LoadReason::kForecast && !spot.instance->used;
    last = expected ? std::max(last, spot.instance->serving_since) : last;
  }
  return last;
}

}  // namespace

std::vector<ModelStatus> model_statuses(const State& state) {
  std::vector<ModelStatus> statuses;
  for (const auto& [id, model] : state.models) {
    if (model.config.part_of || model.config.cut_of) {
      continue;  // Another stands for the whole.
    }
    const HostImage image = image_at(model, best_host(model));
    ModelStatus status{.id = id,
                       .name = model.config.name,
                       .host_cached = image.cached,
                       .image_bytes = model.config.image_bytes,
                       .loaded_bytes = image.bytes,
                       .requests_waiting = std::ssize(model.waiting),
                       .external = model.external(),
                       .loads = model.loads,
                       .evictions = model.evictions,
                       .recalled = model.recalled,
                       .kv_moved_tokens = model.kv_moved_tokens,
                       .kv_again_tokens = model.kv_again_tokens,
                       .step_backs = model.step_backs,
                       .objectives = model.objectives(),
                       .demand = demand_status(model),
                       .last_used = last_used(model),
                       .failure = model.failure};
    add_instances(state, id, status);
    add_shards(state, model, status);
    tell_cut(state, model, status);
    statuses.push_back(std::move(status));
  }
  return statuses;
}

std::vector<DeviceStatus> device_statuses(const State& state) {
  std::vector<DeviceStatus> statuses;
  for (const auto& [id, device] : state.devices) {
    statuses.push_back({.id = id,
                        .name = device.config.name,
                        .up = device.up,
                        .epoch = device.epoch,
                        .restarts = device.restarts,
                        .page_bytes = device.config.page_bytes,
                        .usage = usage_of(device),
                        .residents = residents(state, device),
                        .guests = guests(state, device),
                        .serving = time_used(state, device, DeviceUse::kServing),
                        .switching = time_used(state, device, DeviceUse::kSwitching)});
  }
  return statuses;
}

std::optional<Instant> waits_since(const State& state, ModelId id) {
  const auto found = state.models.find(id);
  std::optional<Instant> first;
  if (found != state.models.end()) {
    for (const auto& [key, request] : found->second.waiting) {
      const Instant arrived = state.requests.at(request).arrived;
      first = first ? std::min(*first, arrived) : arrived;
    }
  }
  return first;
}

namespace {

/// An external engine on several devices is the same on all of them, and a plan for one is.
void check_several(const State& state, const DeviceState& device) {
  for (const auto& [id, instance] : device.instances) {
    if (!state.models.at(id).external() || !instance.part().leader) {
      continue;
    }
    const Instance* first = leading(state, device, id);
    HEDDLE_CHECK(first != nullptr && !first->part().leader && instance.in_flight.empty());
    HEDDLE_CHECK(first->same_stage(instance) && first->kv_pages == instance.kv_pages);
  }
  for (const DeviceId other : device.plan ? device.plan->devices : std::vector<DeviceId>{}) {
    const std::optional<DrainPlan>& plan = state.devices.at(other).plan;
    HEDDLE_CHECK(plan && plan->model == device.plan->model &&
                 plan->devices == device.plan->devices);
  }
}

}  // namespace

void check_invariants(const State& state) {
  check_requests(state);
  for (const auto& [id, device] : state.devices) {
    HEDDLE_CHECK(!device.alone || state.requests.contains(*device.alone));
    for (const auto& [model, instance] : device.instances) {
      HEDDLE_CHECK(state.models.contains(model));
      const bool external = state.models.at(model).external();
      HEDDLE_CHECK(device.up || external);
      HEDDLE_CHECK(external || !instance.is<Suspended>());
      HEDDLE_CHECK(instance.runs() || external || instance.is<Evicting>() ||
                   instance.is<SteppingBack>() || instance.in_flight.empty());
      // Of stages that an earlier manager placed it is not known yet which group they are of.
      HEDDLE_CHECK(external || instance.staged() ||
                   instance.part().leader.has_value() ==
                       state.models.at(model).config.part_of.has_value());
      for (const RequestId request : instance.in_flight) {
        HEDDLE_CHECK(state.requests.at(request).device == id);
      }
    }
    check_several(state, device);
    if (device.plan) {
      const auto wanted = device.instances.find(device.plan->model);
      HEDDLE_CHECK(device.plan->lacks > 0 || wanted == device.instances.end() ||
                   wanted->second.is<Suspended>());
    }
  }
  check_groups(state);
  check_index(state);
}

}  // namespace heddle::core::manager
