#include "core/manager/index.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/manager/groups.h"
#include "core/manager/models.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

template <class Key>
void put(std::set<Key>& list, const Key& key, bool in) {
  if (in) {
    list.insert(key);
  } else {
    list.erase(key);
  }
}

/// The same where `listed` says whether it is in.
void put(std::set<ModelId>& list, ModelId model, bool in, bool& listed) {
  if (in != listed) {
    put(list, model, in);
    listed = in;
  }
}

// ---- Models ----

bool named(const ModelState& model) {
  return !model.config.part_of && !model.config.cut_of;
}

bool serves(const ModelState& model) {
  return std::ranges::any_of(model.spots,
                             [](const Spot& spot) { return spot.instance->is<Serving>(); });
}

bool comes(const ModelState& model) {
  return std::ranges::any_of(model.spots,
                             [](const Spot& spot) { return spot.instance->is<Loading>(); });
}

/// Whether this form of a model is claimed for, on its way to a device, or serves on one.
bool form_under_way(const State& state, const ModelState& form) {
  return form.claim || !form.plans.empty() ||
         std::ranges::any_of(form.spots, [&](const Spot& spot) {
           const Instance& instance = *spot.instance;
           return (instance.is<Loading>() && !instance.staged()) ||
                  (instance.is<Serving>() && !blocked(state, *spot.device, form.config.id)) ||
                  (instance.is<Evicting>() && form.external());
         });
}

template <class Holds>
bool any_form(const State& state, const ModelState& model, Holds holds) {
  return holds(model) || std::ranges::any_of(model.cuts, [&](ModelId cut) {
           const auto found = state.models.find(cut);
           return found != state.models.end() && holds(found->second);
         });
}

Listed lists_of(const State& state, const ModelState& model) {
  const auto under_way = [&](const ModelState& form) { return form_under_way(state, form); };
  const bool waits = !model.waiting.empty();
  return {.going = model.removed || !model.unloads_asked.empty(),
          .ticketed = !model.loads_asked.empty() || !model.unloads_asked.empty(),
          .claiming = model.claim.has_value(),
          .unplaced = model.wanted() && !any_form(state, model, under_way),
          .sendable = waits && (model.unsaid > 0 || any_form(state, model, serves)),
          .attaching = waits && comes(model) && !any_form(state, model, serves),
          .in_stages = std::ranges::any_of(model.cuts,
                                           [&](ModelId cut) {
                                             const auto found = state.models.find(cut);
                                             return found != state.models.end() &&
                                                    !found->second.spots.empty();
                                           }),
          .doubled =
              model.external() && model.footprints.size() > 1 &&
              std::ranges::count_if(
                  model.spots, [](const Spot& spot) { return !spot.instance->part().leader; }) > 1,
          .led = !model.config.groups.empty()};
}

void put(Index& index, ModelId id, ModelState& model, const Listed& lists) {
  Listed& listed = model.listed;
  put(index.going, id, lists.going, listed.going);
  put(index.ticketed, id, lists.ticketed, listed.ticketed);
  put(index.claiming, id, lists.claiming, listed.claiming);
  put(index.unplaced, id, lists.unplaced, listed.unplaced);
  put(index.sendable, id, lists.sendable, listed.sendable);
  put(index.attaching, id, lists.attaching, listed.attaching);
  put(index.in_stages, id, lists.in_stages, listed.in_stages);
  put(index.doubled, id, lists.doubled, listed.doubled);
  put(index.led, id, lists.led, listed.led);
}

// ---- Devices ----

DeviceUse use_of(const State& state, const DeviceState& device) {
  bool switching = device.plan.has_value();
  for (const auto& [model, instance] : device.instances) {
    const bool member = instance.is<Member>();
    const bool follows = member || state.models.at(model).external();
    const Instance* leader = follows ? leading(state, device, model) : &instance;
    const bool runs = instance.runs() || member;
    if (runs && leader != nullptr && !leader->in_flight.empty()) {
      return DeviceUse::kServing;
    }
    switching = switching || (!runs && !instance.is<Suspended>());
  }
  return switching ? DeviceUse::kSwitching : DeviceUse::kNone;
}

void count_use(const State& state, DeviceState& device) {
  const DeviceUse use = use_of(state, device);
  if (use != device.use) {
    device.used.at(static_cast<std::size_t>(device.use)) += state.now - device.used_since;
    device.use = use;
    device.used_since = state.now;
  }
}

bool mixed(const State& state, const DeviceState& device) {
  return std::ranges::any_of(device.instances, [&](const auto& entry) {
    const ModelState& model = state.models.at(entry.first);
    return model.external() || model.grouped();
  });
}

/// How much of the device the instance keeps from whoever is loaded at once, at least.
std::int64_t kept_pages(const DeviceState& device, const ModelState& model, const Instance& here) {
  const policy::Footprint* footprint = model.need_on(device);
  const bool may_go = here.is<Evicting>() || (here.is<Serving>() && here.in_flight.empty());
  return may_go || model.external() || model.grouped() || footprint == nullptr
             ? 0
             : footprint->image_pages + std::max(here.kv_pages, footprint->min_kv_pages);
}

std::int64_t at_most(const State& state, const DeviceState& device) {
  std::int64_t pages = device.config.pages;
  if (device.mixed) {
    return std::numeric_limits<std::int64_t>::max();  // Those have rules of their own.
  }
  for (const auto& [id, instance] : device.instances) {
    pages -= kept_pages(device, state.models.at(id), instance);
  }
  return pages;
}

bool is_dedicated(const State& state, const DeviceState& device) {
  return std::ranges::any_of(device.instances, [&](const auto& entry) {
    return !entry.second.staged() && state.models.at(entry.first).grouped();
  });
}

/// So many changes are remembered.
constexpr std::size_t kChanges = 8192;

bool has_elastic(const DeviceState& device) {
  return device.shortage.engines > 0 ||
         std::ranges::any_of(device.instances,
                             [](const auto& entry) { return entry.second.elastic.has_value(); });
}

bool lacking(const DeviceState& device) {
  const Shortage& shortage = device.shortage;
  return shortage.sequences > 0 || shortage.pages > 0 || shortage.waited != 0;
}

// ---- Groups ----

/// Something has happened on the device: who leads the groups there has to look after them.
void stir(State& state, const DeviceState& device) {
  for (const auto& [id, instance] : device.instances) {
    const ModelState& model = state.models.at(id);
    if (model.sharded()) {
      state.index.stirred.emplace(id, device.config.id);
    } else if (model.config.part_of && instance.part().leader) {
      state.index.stirred.emplace(*model.config.part_of, *instance.part().leader);
    }
  }
}

/// The shard of a group has gone, or it is not known of which group it is.
void stir_blocks(State& state, DeviceId device, const ModelState& shard) {
  const auto whole = state.models.find(*shard.config.part_of);
  if (whole == state.models.end()) {
    return;
  }
  for (const auto& [leader, others] : whole->second.config.groups) {
    if (std::ranges::count(others, device, &ShardPlace::device) > 0) {
      state.index.stirred.emplace(whole->first, leader);
    }
  }
}

// ---- Instances ----

bool watched(const Instance& instance) {
  return !instance.owes.empty() || instance.is<Draining>() || instance.moves_to;
}

void put_spot(const DeviceState& device, ModelState& model, const Instance* instance) {
  const DeviceId id = device.config.id;
  const auto at = std::ranges::lower_bound(model.spots, id, {}, &Spot::id);
  const bool known = at != model.spots.end() && at->id == id;
  if (instance == nullptr) {
    if (known) {
      model.spots.erase(at);
    }
  } else if (known) {
    at->instance = instance;
  } else {
    model.spots.insert(at, {.id = id, .device = &device, .instance = instance});
  }
}

void reindex_asked(State& state, const ModelState& model) {
  const auto whole = model.config.part_of ? state.models.find(*model.config.part_of)
                                          : state.models.find(model.config.id);
  reindex(state, model.config.id);
  if (whole != state.models.end()) {
    const ModelState& all = whole->second;
    reindex(state, all.config.cut_of.value_or(all.config.id));
  }
}

}  // namespace

void reindex(State& state, DeviceId device_id, ModelId id) {
  DeviceState& device = state.devices.at(device_id);
  ModelState& model = state.models.at(id);
  const auto found = device.instances.find(id);
  const Instance* instance = found == device.instances.end() ? nullptr : &found->second;
  put_spot(device, model, instance);
  put(state.index.watched, {device_id, id}, instance != nullptr && watched(*instance));
  device.mixed = mixed(state, device);
  put(state.index.mixed, device_id, device.mixed);
  put(state.index.elastic, device_id, has_elastic(device));
  device.dedicated = is_dedicated(state, device);
  count_use(state, device);
  replace(state, device_id);
  for (const DeviceId other : further_devices(model, device_id)) {
    if (const auto there = state.devices.find(other); there != state.devices.end()) {
      count_use(state, there->second);
    }
  }
  if (model.sharded()) {
    state.index.stirred.emplace(id, device_id);
    for (const ShardPlace& place : block(state, id, device_id)) {
      count_use(state, state.devices.at(place.device));
    }
  } else if (model.config.part_of && (instance == nullptr || !instance->part().leader)) {
    stir_blocks(state, device_id, model);
  }
  stir(state, device);
  if (state.options.planner.share) {
    reindex_asked(state, model);
    return;
  }
  reindex_asked(state, model);
  for (const auto& [other, beside] : device.instances) {
    reindex_asked(state, state.models.at(other));
  }
}

void reindex(State& state, DeviceId id) {
  DeviceState& device = state.devices.at(id);
  Index& index = state.index;
  put(index.leaving, id, device.leaving && device.up);
  put(index.planned, id, device.plan.has_value());
  put(index.alone, id, device.alone.has_value());
  put(index.lending, id, !device.guests.empty());
  put(index.lacking, id, lacking(device));
  put(index.elastic, id, has_elastic(device));
  count_use(state, device);
  replace(state, id);
  const auto plan = device.plan ? std::optional(device.plan->model) : std::nullopt;
  const auto before = std::exchange(device.planned_for, plan);
  if (before == plan) {
    return;
  }
  for (const std::optional<ModelId>& each : {before, plan}) {
    const auto model = each ? state.models.find(*each) : state.models.end();
    if (model == state.models.end()) {
      continue;
    }
    std::erase(model->second.plans, id);
    if (each == plan) {
      model->second.plans.push_back(id);
    }
    reindex_asked(state, model->second);
  }
}

void reindex(State& state, ModelId id) {
  ModelState& model = state.models.at(id);
  put(state.index, id, model, lists_of(state, model));
  const bool waits = !model.waiting.empty();
  if (std::exchange(model.waits, waits) != waits) {  // Where it is idle it may not go then.
    for (const Spot& spot : model.spots) {
      replace(state, spot.id);
    }
  }
}

void replace(State& state, DeviceId id) {
  Index& index = state.index;
  DeviceState& device = state.devices.at(id);
  device.at_most = at_most(state, device);
  if (index.changed.size() >= kChanges) {
    index.forgotten += index.changed.size();
    index.changed.clear();
  }
  index.changed.push_back(id);
}

void reindex(State& state, RequestId id) {
  const auto found = state.requests.find(id);
  put(state.index.lost, id, found != state.requests.end() && found->second.lost.has_value());
}

void reindex(State& state) {
  const std::uint64_t forgotten = state.index.forgotten + state.index.changed.size() + 1;
  state.index = {.forgotten = forgotten};
  for (auto& [id, model] : state.models) {
    model.spots.clear();
    model.plans.clear();
    model.listed = {};
    if (named(model)) {
      state.index.named.emplace_back(id, &model);
    }
  }
  for (auto& [id, device] : state.devices) {
    device.planned_for.reset();
    for (const auto& [model, instance] : device.instances) {
      put_spot(device, state.models.at(model), &instance);
      put(state.index.watched, {id, model}, watched(instance));
    }
    stir(state, device);
    device.mixed = mixed(state, device);
    put(state.index.mixed, id, device.mixed);
    device.dedicated = is_dedicated(state, device);
  }
  for (const auto& [id, device] : state.devices) {
    reindex(state, id);
  }
  for (const auto& [id, model] : state.models) {
    reindex(state, id);
  }
  for (const auto& [id, request] : state.requests) {
    reindex(state, id);
  }
}

void settle(State& state, ModelId model, DeviceId leader) {
  state.index.stirred.erase({model, leader});
}

Duration time_used(const State& state, const DeviceState& device, DeviceUse use) {
  return device.used.at(static_cast<std::size_t>(use)) +
         (device.use == use ? state.now - device.used_since : Duration{});
}

namespace {

void check_model(const State& state, ModelId id, const ModelState& model) {
  std::vector<Spot> spots;
  std::vector<DeviceId> plans;
  for (const auto& [device_id, device] : state.devices) {
    const auto found = device.instances.find(id);
    if (found != device.instances.end()) {
      spots.push_back({.id = device_id, .device = &device, .instance = &found->second});
    }
    if (device.plan && device.plan->model == id) {
      plans.push_back(device_id);
    }
  }
  HEDDLE_CHECK(model.spots == spots);
  HEDDLE_CHECK(std::ranges::is_permutation(model.plans, plans));
  HEDDLE_CHECK(model.listed == lists_of(state, model));
  const Index& index = state.index;
  HEDDLE_CHECK(index.going.contains(id) == model.listed.going);
  HEDDLE_CHECK(index.ticketed.contains(id) == model.listed.ticketed);
  HEDDLE_CHECK(index.claiming.contains(id) == model.listed.claiming);
  HEDDLE_CHECK(index.unplaced.contains(id) == model.listed.unplaced);
  HEDDLE_CHECK(index.sendable.contains(id) == model.listed.sendable);
  HEDDLE_CHECK(index.attaching.contains(id) == model.listed.attaching);
  HEDDLE_CHECK(index.in_stages.contains(id) == model.listed.in_stages);
  HEDDLE_CHECK(index.doubled.contains(id) == model.listed.doubled);
  HEDDLE_CHECK(index.led.contains(id) == model.listed.led);
  const auto unsaid = std::ranges::count_if(
      model.waiting, [&](const auto& entry) { return !state.requests.at(entry.second).held; });
  HEDDLE_CHECK(std::cmp_equal(model.unsaid, unsaid));
}

void check_device(const State& state, DeviceId id, const DeviceState& device) {
  const Index& index = state.index;
  HEDDLE_CHECK(index.leaving.contains(id) == (device.leaving && device.up));
  HEDDLE_CHECK(index.planned.contains(id) == device.plan.has_value());
  HEDDLE_CHECK(index.alone.contains(id) == device.alone.has_value());
  HEDDLE_CHECK(index.lending.contains(id) == !device.guests.empty());
  HEDDLE_CHECK(index.lacking.contains(id) == lacking(device));
  HEDDLE_CHECK(index.elastic.contains(id) == has_elastic(device));
  HEDDLE_CHECK(device.mixed == mixed(state, device));
  HEDDLE_CHECK(index.mixed.contains(id) == device.mixed);
  HEDDLE_CHECK(device.use == use_of(state, device));
  HEDDLE_CHECK(device.at_most == at_most(state, device));
  HEDDLE_CHECK(device.dedicated == dedicated(state, device));
  for (const auto& [model, instance] : device.instances) {
    HEDDLE_CHECK(index.watched.contains({id, model}) == watched(instance));
  }
}

}  // namespace

void check_index(const State& state) {
  auto next = state.index.named.begin();
  for (const auto& [id, model] : state.models) {
    check_model(state, id, model);
    if (named(model)) {
      HEDDLE_CHECK(next != state.index.named.end() && *next == std::pair(id, &model));
      ++next;
    }
  }
  HEDDLE_CHECK(next == state.index.named.end());
  for (const auto& [id, device] : state.devices) {
    check_device(state, id, device);
  }
  for (const auto& [device, model] : state.index.watched) {
    HEDDLE_CHECK(state.devices.at(device).instances.contains(model));
  }
  std::size_t lost = 0;
  for (const auto& [id, request] : state.requests) {
    lost += request.lost ? 1 : 0;
    HEDDLE_CHECK(state.index.lost.contains(id) == request.lost.has_value());
  }
  HEDDLE_CHECK(lost == state.index.lost.size());
}

}  // namespace heddle::core::manager
