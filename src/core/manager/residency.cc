#include "core/manager/residency.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "core/manager/groups.h"
#include "core/manager/images.h"
#include "core/manager/index.h"
#include "core/manager/models.h"

namespace heddle::core::manager {
namespace {

/// What is left of the most KV pages that a model had, after one period.
constexpr double kPeakKept = 0.98;

DecisionKind decision_of(LoadReason why) {
  switch (why) {
    case LoadReason::kForecast:
      return DecisionKind::kPrewarm;
    case LoadReason::kLoad:
    case LoadReason::kGather:
      return DecisionKind::kAdd;
    case LoadReason::kPressure:
      return DecisionKind::kMove;
    default:
      return DecisionKind::kLoad;
  }
}

}  // namespace

/// The instance that speaks for this one, to change it.
Instance* Residency::leading_instance(DeviceId device, ModelId model) {
  const Instance& here = instance(device, model);
  if (!here.part().leader || here.staged()) {
    return &instance(device, model);
  }
  auto& there = state_.devices.at(*here.part().leader).instances;
  const auto found = there.find(whole(state_, model));
  return found == there.end() ? nullptr : &found->second;
}

void Residency::changed(DeviceId device, ModelId model) {
  reindex(state_, device, model);
  mirror(device, model);
}

/// What is true of an engine on its first device is true of it on the others.
void Residency::mirror(DeviceId leader, ModelId model) {
  const auto& instances = state_.devices.at(leader).instances;
  const auto first = instances.find(model);
  for (const DeviceId other : further_devices(state_.models.at(model), leader)) {
    const auto device = state_.devices.find(other);
    if (device == state_.devices.end()) {
      continue;  // Its host has gone.
    }
    if (first == instances.end()) {
      device->second.instances.erase(model);
    } else {
      Instance& part = device->second.instances[model];
      part.stage_ = first->second.stage_;
      part.part_ = {.leader = leader};
      part.why = first->second.why;
      part.load_began = first->second.load_began;
      part.serving_since = first->second.serving_since;
      part.from_host = first->second.from_host;
      part.kv_pages = first->second.kv_pages;
    }
    reindex(state_, other, model);
  }
}

void Residency::leader_changed(DeviceId device, ModelId model) {
  const GroupPart& part = instance(device, model).part();
  if (part.leader && !part.staged) {
    changed(*part.leader, whole(state_, model));
  } else {
    changed(device, model);
  }
}

// ---- Who comes ----

void Residency::load(DeviceId device,
                     ModelId model,
                     const std::vector<ModelId>& victims,
                     LoadReason why,
                     const std::string& because,
                     std::optional<Duration> first_token) {
  const auto& instances = state_.devices.at(device).instances;
  const auto here = instances.find(model);
  HEDDLE_CHECK(here == instances.end() || here->second.is<Suspended>());
  out_.note(decision_of(why),
            model,
            device,
            because + describe_fetch(state_, model, host_of(device)),
            {},
            first_token);
  for (const ModelId victim : victims) {
    evict(device, victim, EvictMode::kWhenIdle, EvictionReason::kDisplaced, model);
  }
  begin_load(device, model, why);
}

void Residency::begin_load(DeviceId device_id,
                           ModelId model,
                           LoadReason why,
                           const GroupPart& part) {
  queues_.disturb(device_id);
  DeviceState& device = state_.devices.at(device_id);
  ModelState& state = state_.models.at(model);
  Instance& instance = device.instances[model];
  const bool stood_by = instance.is<Suspended>();
  instance.stage_ = Loading{};
  instance.part_ = part;
  changed(device_id, model);
  instance.why = why;
  instance.load_began = state_.now;
  instance.from_host = stood_by || state.cached_at(host_of(device_id));
  instance.used = !instance.in_flight.empty();
  instance.fetched = to_fetch(state, host_of(device_id)) > 0;
  instance.peers = fetch_peers(state_, model, host_of(device_id));
  ++state.loads[static_cast<std::size_t>(why)];
  guests_.make_room(device_id, model);
  fetches_.begin(host_of(device_id), model);
  LoadOn order{.device = device_id,
               .model = model,
               .basis = {.epoch = device.epoch, .version = device.version},
               .early = why == LoadReason::kForecast || why == LoadReason::kGather,
               .due_in = instance.fetched ? due_in(state_, model) : Duration{}};
  for (const HostId peer : instance.peers) {
    order.peers.push_back({.id = peer});
  }
  out_.act(std::move(order));
  mirror(device_id, model);
  for (const DeviceId other : further_devices(state, device_id)) {
    const DeviceState& there = state_.devices.at(other);
    queues_.disturb(other);
    guests_.make_room(other, model);
    out_.act(LoadOn{.device = other,
                    .model = model,
                    .basis = {.epoch = there.epoch, .version = there.version}});
  }
}

void Residency::join(DeviceId device, ModelId shard, DeviceId leader) {
  Instance& here = instance(device, shard);
  here.part_ = {.leader = device == leader ? std::nullopt : std::optional(leader)};
  here.stage_ = Loading{};
  changed(device, shard);
}

void Residency::form(ModelId model, DeviceId leader) {
  instance(leader, model).part_.forming = true;
  changed(leader, model);
  FormGroup form;
  for (const ShardPlace& place : block(state_, model, leader)) {
    form.members.push_back({.device = place.device,
                            .epoch = state_.devices.at(place.device).epoch,
                            .model = place.model});
    if (host_of(place.device) != host_of(leader)) {
      form.group.number = state_.groups_formed + 1;
    }
  }
  state_.groups_formed = std::max(state_.groups_formed, form.group.number);
  out_.act(std::move(form));
}

void Residency::formed(ModelId model, DeviceId leader) {
  for (const ShardPlace& place : block(state_, model, leader)) {
    Instance& shard = instance(place.device, place.model);
    const bool follows = shard.part_.leader.has_value();
    shard.stage_ = follows ? Stage(Member{}) : Stage(Serving{});
    shard.part_.forming = !follows;
    shard.serving_since = state_.now;
    shard.used = shard.used || follows;
    changed(place.device, place.model);
  }
}

void Residency::stand_by(ModelId model, DeviceId leader) {
  for (const ShardPlace& place : block(state_, model, leader)) {
    Instance& shard = instance(place.device, place.model);
    shard.part_.staged = true;
    shard.part_.forming = false;
    shard.stage_ = Member{};
    shard.kv_pages = 0;
    changed(place.device, place.model);
  }
}

void Residency::serve(DeviceId device, ModelId model) {
  Instance& here = instance(device, model);
  if (here.is<Loading>()) {
    here.serving_since = state_.now;
  }
  here.stage_ = here.staged() ? Stage(Member{}) : Stage(Serving{});
  changed(device, model);
}

void Residency::adopt(DeviceId device, const ResidentReport& resident, const GroupPart& part) {
  Instance& here = state_.devices.at(device).instances[resident.model];
  here.part_ = part;
  here.load_began = here.serving_since = state_.now;
  switch (resident.residency) {
    case core::Residency::kWarm:
    case core::Residency::kServing:
      here.stage_ = part.staged ? Stage(Member{}) : Stage(Serving{});
      break;
    case core::Residency::kDraining:
      here.stage_ = Evicting{};
      break;
    default:
      here.stage_ = Loading{};
  }
  changed(device, resident.model);
}

// ---- Who goes ----

void Residency::drain(DeviceId device, ModelId model, bool cramped) {
  Instance& leader = *leading_instance(device, model);
  if (!leader.is<Draining>()) {
    leader.stage_ = Draining{.cramped = cramped};
    leader_changed(device, model);
  }
}

void Residency::drain_for(DeviceId device, ModelId model, ModelId wanted, ModelId named) {
  Instance& leader = *leading_instance(device, model);
  leader.stage_ = Draining{};
  leader_changed(device, model);
  const std::size_t left = leader.in_flight.size();
  out_.note(DecisionKind::kDrain,
            named,
            device,
            left == 0 ? "idle, and sent nothing more"
                      : std::to_string(left) + " requests of its own end first",
            wanted);
}

void Residency::resume(DeviceId device, ModelId model) {
  Instance* leader = leading_instance(device, model);
  if (leader != nullptr && leader->is<Draining>()) {
    leader->stage_ = Serving{};
    leader_changed(device, model);
  }
}

void Residency::evict(DeviceId device,
                      ModelId model,
                      EvictMode mode,
                      EvictionReason why,
                      std::optional<ModelId> for_model,
                      std::int64_t free_pages) {
  const GroupPart part = instance(device, model).part();
  if (on_several(state_.models.at(model)) && instance(device, model).is<Evicting>()) {
    return;  // It goes from all its devices already.
  }
  if (!part.leader || part.staged) {
    evict_here(device, model, mode, why, for_model, free_pages);
    return;
  }
  const Instance* first = leading_instance(device, model);
  if (first != nullptr && !first->is<Evicting>()) {
    evict_here(*part.leader, whole(state_, model), mode, why, for_model, free_pages);
  }
}

void Residency::evict_here(DeviceId device_id,
                           ModelId model,
                           EvictMode mode,
                           EvictionReason why,
                           std::optional<ModelId> for_model,
                           std::int64_t free_pages) {
  const DeviceState& device = state_.devices.at(device_id);
  Instance& here = instance(device_id, model);
  HEDDLE_CHECK(mode != EvictMode::kWhenIdle || here.in_flight.empty());
  here.stage_ = Evicting{.why = why};
  changed(device_id, model);
  const Duration idle = state_.now - state_.models.at(model).last_used;
  out_.note(DecisionKind::kEvict,
            model,
            device_id,
            std::string(name(why)) + "; last used " + format_duration(idle) + " ago",
            for_model);
  out_.act(EvictFrom{.device = device_id,
                     .model = model,
                     .basis = {.epoch = device.epoch, .version = device.version},
                     .mode = mode,
                     .free_pages = free_pages,
                     .idle = idle});
}

void Residency::step_back(DeviceId device, ModelId shard, ModelId for_model) {
  const DeviceId leader = instance(device, shard).part().leader.value_or(device);
  const ModelId all = whole(state_, shard);
  Instance& first = instance(leader, all);
  HEDDLE_CHECK(first.runs() && first.in_flight.empty() && in_group(state_, all, first));
  first.stage_ = SteppingBack{};
  changed(leader, all);
  ModelState& model = state_.models.at(all);
  ++model.step_backs;
  out_.note(DecisionKind::kStepBack,
            all,
            leader,
            "its shards stay; last used " + format_duration(state_.now - model.last_used) + " ago",
            for_model);
  out_.act(TellWorker{.device = leader,
                      .epoch = state_.devices.at(leader).epoch,
                      .message = StepBack{.model = all}});
}

void Residency::eviction_refused(DeviceId device, ModelId model) {
  Instance& here = instance(device, model);
  here.stage_ = here.staged() ? Stage(Member{}) : Stage(Serving{});
  changed(device, model);
}

void Residency::count_eviction(DeviceId device, ModelId model) {
  const Evicting* evicting = instance(device, model).as<Evicting>();
  const EvictionReason why = evicting == nullptr ? EvictionReason::kDisplaced : evicting->why;
  ++state_.models.at(model).evictions[static_cast<std::size_t>(why)];
}

void Residency::suspend(DeviceId device, ModelId model, std::int64_t held_pages) {
  Instance& engine = instance(device, model);
  if (!engine.is<Loading>()) {  // Else it did not come.
    demand_.count_waste(device, model);
  }
  engine.why = LoadReason::kRequest;
  engine.stage_ = Suspended{};
  engine.kv_pages = held_pages;
  changed(device, model);
}

void Residency::leader_goes(DeviceId device, ModelId shard, EvictionReason why) {
  if (auto* member = std::get_if<Member>(&instance(device, shard).stage_)) {
    member->leader_went_for = why;
  }
}

void Residency::lose(DeviceId device, ModelId model) {
  const Instance& here = instance(device, model);
  for (const RequestId id : std::set<RequestId>(here.in_flight)) {
    queues_.requeue(id);
  }
  demand_.count_waste(device, model);
  forget(device, model);
}

void Residency::forget(DeviceId device, ModelId model) {
  state_.devices.at(device).instances.erase(model);
  changed(device, model);
}

// ---- What is said of instances ----

bool Residency::observe(DeviceId device, const ResidentReport& resident) {
  Instance& here = instance(device, resident.model);
  here.kv_pages = resident.kv_pages;
  here.guest_pages = resident.guest_pages;
  here.attention = resident.attention;
  here.guest_loss = resident.guest_loss;
  here.reading = resident.reading;
  here.adapters = {resident.adapters.begin(), resident.adapters.end()};
  const bool completed = resident.complete && !here.complete;
  here.complete = here.complete || resident.complete;
  if (completed) {
    changed(device, resident.model);
  } else {
    replace(state_, device);
  }
  return completed;
}

void Residency::hold_pages(DeviceId device, ModelId model, std::int64_t pages) {
  instance(device, model).kv_pages = pages;
  replace(state_, device);
  mirror(device, model);
}

void Residency::spare(DeviceId device, ModelId model, bool spare) {
  instance(device, model).spare = spare;
}

void Residency::move(DeviceId device, ModelId model, std::optional<DeviceId> to) {
  instance(device, model).moves_to = to;
  changed(device, model);
}

void Residency::decay_peaks() {
  for (auto& [id, device] : state_.devices) {
    for (auto& [model, here] : device.instances) {
      if (here.kv_peak != here.kv_pages && !state_.models.at(model).grouped()) {
        const auto kept = static_cast<std::int64_t>(kPeakKept * static_cast<double>(here.kv_peak));
        here.kv_peak = std::max(here.kv_pages, kept);
      }
    }
  }
}

}  // namespace heddle::core::manager
