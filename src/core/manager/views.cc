#include "core/manager/views.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/manager/groups.h"
#include "core/manager/images.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/value.h"
#include "policy/adapter_places.h"
#include "policy/eviction.h"

namespace heddle::core::manager {
namespace {

/// How long the oldest of the requests has waited or run that run there or wait for the model.
Duration oldest_wait(const State& state, const ModelState& users, const Instance& instance) {
  Instant oldest = state.now;
  for (const RequestId request : instance.in_flight) {
    oldest = std::min(oldest, state.requests.at(request).arrived);
  }
  for (const auto& [key, request] : users.waiting) {
    oldest = std::min(oldest, state.requests.at(request).arrived);
  }
  return state.now - oldest;
}

/// An external engine as a victim for `wanted`. One that stands by can only give up what it still
/// holds, and only by being ended, which its requests would not survive.
policy::ResidentView engine_view(const State& state,
                                 const DeviceState& device,
                                 ModelId id,
                                 const ModelState& wanted) {
  const ModelState& model = state.models.at(id);
  const Instance& instance = *leading(state, device, id);
  const bool stands_by = instance.is<Suspended>();
  const bool busy = !instance.in_flight.empty();
  return {
      .model = id,
      .pages = pages_of(state, device, id),
      .queue = std::ssize(instance.in_flight) + std::ssize(model.waiting),
      .oldest_wait = oldest_wait(state, model, instance),
      .last_used = model.last_used,
      .serving_since = instance.serving_since,
      .min_residence = residence(model, instance),
      .pinned = model.config.pin && !model.removed,
      .displaced = !stands_by && displaces(wanted, id),
      .swap = std::max<Duration>(model.swap_out + model.swap_in, Duration(1)),
      .leaves = busy_time(model, instance) + model.swap_out,
      .in_transition =
          stands_by ? busy : !instance.is<Serving>() && !comes_for_nobody(state, model, device)};
}

/// A model of ours as a victim for `wanted`. Of a shard in its group, what counts is how the group
/// stands.
policy::ResidentView resident_view(const State& state,
                                   const DeviceState& device,
                                   ModelId id,
                                   const ModelState& wanted,
                                   std::int64_t workspace) {
  const Instance& here = device.instances.at(id);
  const ModelState& model = state.models.at(whole(state, id));
  const ModelState& users = state.models.at(asked(state, id));
  const Instance& instance = *leading(state, device, id);
  const bool to_itself = in_group(state, id, here) && !model.config.shares;
  const bool alone = to_itself || (in_group(state, id, here) && wanted.grouped() &&
                                   !of_cut(state, wanted.config.id) &&
                                   !run_beside(state, device, id, wanted.config.id));
  const bool slow = (in_group(state, id, here) || wanted.grouped()) &&
                    too_slow_beside(state, device, id, wanted.config.id);
  const bool settled = here.staged() ? instance.is<Member>() : instance.is<Serving>();
  return {.model = id,
          .pages = to_itself ? device.config.pages
                             : pages_of(device, state.models.at(id), &here, workspace),
          .queue = std::ssize(instance.in_flight) + std::ssize(users.waiting),
          .oldest_wait = device.mixed ? oldest_wait(state, users, instance) : Duration{},
          .last_used = users.last_used,
          .serving_since = instance.serving_since,
          .min_residence = model.config.min_residence,
          .pinned = stays(state, model),
          .displaced = displaces(wanted, id) || alone || slow ||
                       (!state.options.planner.share && busy(state, id, instance)),
          .leaves = busy_time(users, instance),
          .in_transition = !settled,
          .runs_alone = here.staged()};
}

}  // namespace

void weigh(const State& state, const DeviceState& device, policy::PlacementDevice& view) {
  for (policy::ResidentView& resident : view.residents) {
    resident.worth = worth_to_waiting(state, device, resident.model);
  }
}

policy::PlacementDevice view(const State& state, const DeviceState& device, ModelId wanted) {
  policy::PlacementDevice view = outline(state, device, wanted);
  weigh(state, device, view);
  view.pressure = pressure(state, device, wanted);
  return view;
}

namespace {

/// A worker that refuses loads may have CUDA graphs that the driver does not give back: their pages
/// are not free. They are counted only where others may leave in their stead, as they go with the
/// last model.
void leave_graphs(const State& state, const DeviceState& device, policy::PlacementDevice& view) {
  std::int64_t workspace = 0;
  std::int64_t others = 0;
  for (const policy::ResidentView& resident : view.residents) {
    workspace = std::max(workspace, workspace_of(state, device, resident.model));
    others += resident.pages;
  }
  const std::int64_t graphs = device.usage.of(ledger::LeaseKind::kOverhead).held - workspace;
  view.free_pages = std::max(view.free_pages - std::max<std::int64_t>(graphs, 0),
                             std::min(view.free_pages, view.need_pages - others));
}

}  // namespace

policy::PlacementDevice outline(const State& state, const DeviceState& device, ModelId wanted) {
  const auto here = device.instances.find(wanted);
  const bool there = here != device.instances.end();
  const bool stands_by = there && here->second.is<Suspended>();
  // An engine that stands still with requests comes back to end them.
  const bool frozen = stands_by && !here->second.in_flight.empty();
  const bool present = there && !stands_by && staged(device, wanted) == nullptr;
  const ModelState& model = state.models.at(wanted);
  const std::int64_t workspace = workspace_of(state, device, wanted);
  const ModelId all = whole(state, wanted);
  policy::PlacementDevice view{
      .id = device.config.id,
      .need_pages = pages_to_come(state, device, wanted),
      .pages = device.config.pages,
      .free_pages = free_pages(state, device, workspace),
      .available = device.up && (!device.leaving || frozen) && !device.plan && !device.alone &&
                   !present && state.now >= device.paused_until &&
                   device.claimed.value_or(all) == all,
      // Beside a group that has requests only where nothing else is: both would be slower.
      .short_of_pages = (state.options.planner.pressure && device.shortage.sequences > 0) ||
                        (device.dedicated && !model.grouped() && runs_group(state, device)),
      .reserved =
          device.reserved && device.reserved->model != all ? device.reserved : std::nullopt};
  view.residents.reserve(device.instances.size());
  for (const auto& [id, instance] : device.instances) {
    if (instance.is<Evicting>() || id == wanted) {
      continue;
    }
    if (!state.models.at(id).external()) {
      view.residents.push_back(resident_view(state, device, id, model, workspace));
      if (device.owed.model == whole(state, id) && state.now < device.owed.until) {
        view.free_pages -= device.owed.pages;  // Its KV is about to have them.
        view.residents.back().pages += device.owed.pages;
      }
    } else if (!instance.is<Suspended>() || instance.kv_pages > 0) {
      view.residents.push_back(engine_view(state, device, id, model));
    }
  }
  if (device.refusals > 0) {
    leave_graphs(state, device, view);
  }
  return view;
}

std::int64_t pages_that_stay(const State& state,
                             const DeviceState& device,
                             ModelId id,
                             std::int64_t workspace) {
  return may_step_back(state, device, id) ? pages_if_staged(state, device, id, workspace)
                                          : pages_of(state, device, id, workspace);
}

namespace {

/// What stays on the device whatever comes.
std::int64_t pinned_pages(const State& state, const DeviceState& device, ModelId wanted) {
  const std::int64_t workspace = workspace_of(state, device, wanted);
  std::int64_t pages = 0;
  for (const auto& [id, instance] : device.instances) {
    const ModelState& model = state.models.at(whole(state, id));
    if (id != wanted && !instance.is<Evicting>() && !model.external() && stays(state, model)) {
      pages += pages_that_stay(state, device, id, workspace);
    }
  }
  return pages;
}

}  // namespace

std::int64_t pages_for_shard(const State& state, const DeviceState& device, ModelId shard) {
  const ModelState& model = state.models.at(asked(state, shard));
  const policy::Footprint& footprint = *state.models.at(shard).need_on(device);
  std::vector<std::int64_t> lengths;
  for (const auto& [key, request] : model.waiting) {
    lengths.push_back(state.requests.at(request).need);
  }
  const std::int64_t fixed = footprint.image_pages + footprint.overhead_pages;
  const std::int64_t kv = std::max(policy::kv_pages(footprint.kv, lengths), footprint.min_kv_pages);
  const std::int64_t most = device.config.pages - pinned_pages(state, device, shard) - fixed;
  return fixed + std::max(std::min(kv, most), footprint.min_kv_pages);
}

namespace {

/// What makes room on a device, while it is chosen.
struct Clearing {
  InTheWay way{};
  std::vector<policy::ResidentView> others{};  ///< That may stay.
  std::int64_t free = 0;                       ///< Pages, when those of `way` have made room.

  /// The group's shard stays, if nothing else wants its pages, and what it has beyond is free.
  void step_back(policy::ResidentView& group, std::int64_t staged) {
    free += group.pages - staged;
    group.pages = staged;
    way.steps_back.push_back(group.model);
  }
};

/// Has idle groups step back whose KV, with what is free, is all that is lacking: those that were
/// used longest ago first.
void take_idle_shares(const State& state,
                      const DeviceState& device,
                      std::int64_t need,
                      std::int64_t workspace,
                      Clearing& clearing) {
  std::vector<std::pair<std::int64_t, policy::ResidentView*>> idle;  // By what is left of each.
  std::int64_t most = clearing.free;
  const std::vector<ModelId> shares = idle_shares(state, device);
  for (policy::ResidentView& resident : clearing.others) {
    if (std::ranges::count(shares, resident.model) > 0 &&
        std::ranges::count(clearing.way.steps_back, resident.model) == 0) {
      idle.emplace_back(pages_if_staged(state, device, resident.model, workspace), &resident);
      most += resident.pages - idle.back().first;
    }
  }
  if (clearing.free >= need || most < need) {
    return;
  }
  std::ranges::sort(idle, {}, [](const auto& each) {
    return std::pair(each.second->last_used, each.second->model);
  });
  for (const auto& [staged, resident] : idle) {
    if (clearing.free < need) {
      clearing.step_back(*resident, staged);
    }
  }
}

/// Has pinned groups step back once they are idle.
void take_pinned_shares(const State& state,
                        const DeviceState& device,
                        std::int64_t workspace,
                        Clearing& clearing) {
  for (policy::ResidentView& resident : clearing.others) {
    if (resident.pinned && may_step_back(state, device, resident.model) &&
        std::ranges::count(clearing.way.steps_back, resident.model) == 0) {
      clearing.step_back(resident, pages_if_staged(state, device, resident.model, workspace));
    }
  }
}

}  // namespace

std::optional<InTheWay> in_the_way(const State& state, const DeviceState& device, ModelId shard) {
  if (!state.models.at(shard).config.shares) {
    return std::nullopt;
  }
  const policy::PlacementDevice there = view(state, device, shard);
  const std::int64_t workspace = workspace_of(state, device, shard);
  Clearing clearing{.free = there.free_pages};
  if (staged(device, shard) != nullptr) {
    clearing.free += pages_of(state, device, shard, workspace);
  }
  for (policy::ResidentView resident : there.residents) {
    const ModelId id = resident.model;
    const Instance* leader = leading(state, device, id);
    const bool leaves = resident.displaced || leader == nullptr || !leader->is<Serving>();
    // No request waits for what is on its way to be staged.
    resident.in_transition = resident.in_transition && staged(device, id) == nullptr;
    if (state.models.at(id).external()) {
      clearing.free += resident.pages;
    } else if (leaves && may_step_back(state, device, id)) {
      clearing.step_back(resident, pages_if_staged(state, device, id, workspace));
      resident.displaced = resident.in_transition = false;
      clearing.others.push_back(resident);
    } else if (resident.displaced || leader == nullptr || leader->is<Draining>()) {
      clearing.way.goes.push_back(id);
      clearing.free += resident.pages;
    } else {
      clearing.others.push_back(resident);
    }
  }
  const std::int64_t need = pages_for_shard(state, device, shard);
  take_idle_shares(state, device, need, workspace, clearing);
  auto victims = policy::choose_victims(clearing.others, clearing.free, need);
  if (!victims) {
    take_pinned_shares(state, device, workspace, clearing);
    victims = policy::choose_victims(clearing.others, clearing.free, need);
  }
  if (!victims) {
    return std::nullopt;
  }
  std::erase_if(clearing.way.steps_back,
                [&](ModelId id) { return std::ranges::count(*victims, id) > 0; });
  clearing.way.goes.insert(clearing.way.goes.end(), victims->begin(), victims->end());
  return clearing.way;
}

namespace {

/// Of a device that has to be cleared for a shard: its pages, without those that stay in its way
/// if the shard can never be there. Groups that come, or have requests, may step back some time.
std::int64_t pages_to_clear(const State& state,
                            const DeviceState& device,
                            ModelId shard,
                            const policy::PlacementDevice& there) {
  const bool shares = state.models.at(shard).config.shares;
  const std::int64_t workspace = workspace_of(state, device, shard);
  std::int64_t pinned = 0;
  std::int64_t stay = 0;
  for (const policy::ResidentView& resident : there.residents) {
    if (resident.pinned) {
      const bool steps_back = state.models.at(resident.model).config.shares;
      pinned += resident.pages;
      stay +=
          steps_back ? pages_if_staged(state, device, resident.model, workspace) : resident.pages;
    }
  }
  const std::int64_t room =
      shares ? device.config.pages - pages_for_shard(state, device, shard) : 0;
  return there.pages + (stay > room ? 0 : pinned);
}

}  // namespace

policy::PlacementDevice block_view(const State& state, ModelId model, DeviceId leader) {
  policy::PlacementDevice all{
      .id = leader, .available = true, .missing = missing(state, model, leader)};
  std::set<ModelId> groups;
  for (const ShardPlace& place : block(state, model, leader)) {
    const DeviceState& device = state.devices.at(place.device);
    policy::PlacementDevice part = view(state, device, place.model);
    const auto way = in_the_way(state, device, place.model);
    // All that is in the way has to go, and that is enough, whatever it is counted as.
    std::int64_t need = way ? 1 : part.pages;
    all.available = all.available && part.available;
    if (part.reserved && (!all.reserved || part.reserved->since < all.reserved->since)) {
      all.reserved = part.reserved;
    }
    for (policy::ResidentView& resident : part.residents) {
      const ModelState& other = state.models.at(resident.model);
      const bool ours = way && !other.external();
      if (ours && !way->has(resident.model)) {
        all.short_of_pages = all.short_of_pages || resident.queue > 0;  // Both are slower.
        continue;
      }
      resident.displaced = true;
      need += way ? resident.pages : 0;
      if (staged(device, resident.model) != nullptr) {
        resident.in_transition = false;  // No request waits for what is on its way.
      }
      const bool stays = ours && std::ranges::count(way->steps_back, resident.model) > 0;
      resident.pinned = resident.pinned && !stays;
      const bool lost =
          other.grouped() && !stays && !groups.insert(whole(state, resident.model)).second;
      if (stays || lost) {
        resident.worth = 0;  // The shards of a group stay, or are lost together.
      }
      all.residents.push_back(resident);
    }
    all.need_pages += need;
    all.pages += way ? need : pages_to_clear(state, device, place.model, part);
    all.free_pages += way ? 1 : part.free_pages;
    if (!way) {
      if (staged(device, place.model) != nullptr) {
        all.free_pages +=
            pages_of(state, device, place.model, workspace_of(state, device, place.model));
      }
    }
  }
  return all;
}

policy::PlacementOptions placing(const State& state, ModelId id, Duration load, Duration soonest) {
  const ModelState& model = state.models.at(id);
  const std::optional<Instant> due = first_due(state, id);
  return {.drain_after = state.options.drain_after,
          .load = load,
          .kind = model.external()  ? policy::PlanKind::kSwapIn
                  : model.sharded() ? policy::PlanKind::kGroup
                                    : policy::PlanKind::kActivate,
          .soonest = soonest,
          .first = prompt_time(model),
          .ttft_left = due ? *due - state.now : Duration::max(),
          .stays = stay_time(model)};
}

std::optional<Duration> stay_time(const ModelState& model) {
  const Duration answer = from_seconds(model.demand.mean_service());
  if (!model.external()) {
    return model.grouped() ? std::nullopt : std::optional(model.config.min_residence + answer);
  }
  if (model.swap_in == Duration{}) {
    return std::nullopt;  // What it takes to leave is not known, either.
  }
  const Duration drained = std::min(answer, model.config.external->drain.value_or(answer));
  return most_residence(model) + drained + model.swap_out;
}

std::optional<DeviceId> standing_by(const State& state, ModelId model) {
  for (const Spot& spot : state.models.at(model).spots) {
    if (spot.instance->is<Suspended>()) {
      return spot.id;
    }
  }
  return std::nullopt;
}

Places places_for(const State& state, ModelId id, std::int64_t need) {
  const ModelState& model = state.models.at(id);
  Places places;
  const LoadTimes load_times(state, model);
  const auto consider = [&](DeviceId device) {
    const std::int64_t room = tokens_max(state, id, device);
    if (need > room || (model.sharded() && room == 0)) {
      places.fits_elsewhere = std::max(places.fits_elsewhere, room);
      return;
    }
    const DeviceState& there = state.devices.at(device);
    places.views.push_back(model.sharded() ? block_view(state, id, device)
                                           : view(state, there, id));
    for (const DeviceId other : further_devices(model, device)) {
      places.views.push_back(view(state, state.devices.at(other), id));
    }
    if (state.options.planner.value) {
      places.load_takes = std::max(places.load_takes, load_times.on(there));
    }
  };
  if (model.sharded()) {
    for (const auto& [leader, others] : model.config.groups) {
      consider(leader);
    }
  } else {
    const std::optional<DeviceId> only = standing_by(state, id);
    for (const Seat& seat : model.footprints.seats()) {
      if (!only || seat.device == *only) {
        consider(seat.device);
      }
    }
    if (!model.external()) {
      weigh_hosts(state, id, places.views);
    }
    const auto first =
        std::ranges::find(places.views, Duration{}, &policy::PlacementDevice::missing);
    if (first != places.views.end()) {
      places.soonest = load_times.on(state.devices.at(first->id));
    }
  }
  return places;
}

bool blocked(const State& state, const DeviceState& device, ModelId model) {
  return !state.options.planner.share &&
         std::any_of(device.instances.begin(), device.instances.end(), [&](const auto& entry) {
           return entry.first != model && !entry.second.in_flight.empty();
         });
}

bool serves_complete(const State& state, ModelId id) {
  return std::ranges::any_of(state.models.at(id).spots, [&](const Spot& spot) {
    return spot.instance->is<Serving>() && spot.instance->complete &&
           !blocked(state, *spot.device, id);
  });
}

namespace {

/// An instance as a request for one of its model's adapters sees it. Who runs there already has
/// brought its adapter, or is about to.
policy::AdapterPlace adapter_place(const State& state,
                                   const Instance& instance,
                                   const std::string& adapter) {
  std::set<std::string_view> there(instance.adapters.begin(), instance.adapters.end());
  for (const RequestId request : instance.in_flight) {
    there.insert(state.requests.at(request).adapter);
  }
  there.erase(std::string_view());
  return {.load = std::ssize(instance.in_flight),
          .has = there.contains(adapter),
          .adapters = std::ssize(there)};
}

}  // namespace

std::vector<DeviceId> serving_places(const State& state, ModelId id, const std::string& adapter) {
  std::vector<std::tuple<bool, policy::PlaceRank, DeviceId>> places;
  const ModelState& model = state.models.at(id);
  const std::int64_t batch = model.config.batch;
  bool room = false;
  for (const Spot& spot : model.spots) {
    const Instance& instance = *spot.instance;
    if (instance.is<Serving>() && !instance.part().leader && !blocked(state, *spot.device, id)) {
      const auto load = std::ssize(instance.in_flight);
      const bool shortage = state.options.planner.pressure && spot.device->shortage.sequences > 0;
      const policy::PlaceRank rank =
          adapter.empty() ? policy::PlaceRank{.load = load}
                          : policy::rank_of(adapter_place(state, instance, adapter), batch);
      places.emplace_back(instance.spare || shortage, rank, spot.id);
      room = room || (!instance.spare && !shortage && load < batch);
    }
  }
  for (auto& place : places) {
    std::get<bool>(place) = std::get<bool>(place) && room;
  }
  std::sort(places.begin(), places.end());
  std::vector<DeviceId> sorted;
  for (const auto& place : places) {
    sorted.push_back(std::get<DeviceId>(place));
  }
  return sorted;
}

}  // namespace heddle::core::manager
