#include <algorithm>
#include <string>

#include "base/check.h"
#include "sim/planes/live.h"

namespace heddle::sim {
namespace {

Reason reason_of(const core::Decision* decision) {
  if (decision == nullptr) {
    return Reason::kMiss;
  }
  switch (decision->kind) {
    case core::DecisionKind::kPrewarm:
      return Reason::kForecast;
    case core::DecisionKind::kAdd:
      return Reason::kScaleUp;
    case core::DecisionKind::kMove:
      return Reason::kBalance;
    default:
      return Reason::kMiss;
  }
}

}  // namespace

// ---- Who comes ----

/// A worker takes orders in turn, and refuses those that were decided upon what no longer holds.
void LivePlane::perform(const Turn& turn, const core::LoadOn& load) {
  if (map_->engine(load.model) != nullptr) {
    return bring_in(turn, load);
  }
  LiveDevice& place = device(load.device);
  if (!place.lives(load.basis.epoch)) {
    return;  // The manager has heard, or will.
  }
  if (load.basis.version != place.version()) {
    return refuse(load, {Code::kFailedPrecondition, "stale"});
  }
  if (place.resident(load.model) != nullptr) {
    return refuse(load, {Code::kFailedPrecondition, "it is resident already"});
  }
  const LiveMap::Part& part = map_->part(load.model);
  if (!has_room(turn, load)) {
    return refuse(load, {Code::kResourceExhausted, "no room"});
  }
  place.residents()[load.model] = {};
  // Of a model there is one pipeline at most; its stages are ordered together.
  const DeviceId leader = part.stage ? DeviceId{} : map_->block(load.model, load.device).front();
  Gathering& parts = gathering_[{part.first, leader}];
  parts.insert_or_assign(part.at, load);
  if (parts.size() == part.of) {
    start(turn, gathering_.extract({part.first, leader}).mapped());
  }
}

/// Whether its pages are free, or may come free by evictions that are under way.
bool LivePlane::has_room(const Turn& turn, const core::LoadOn& load) const {
  const GpuId gpu = map_->gpu(load.device);
  std::int64_t free = turn.world.free_pages(gpu);
  for (const ReplicaId id : turn.world.gpu(gpu).replicas) {
    const Replica& replica = *turn.world.replica(id);
    if (replica.state == ReplicaPhase::kEvicting) {
      return true;
    }
    if (replica.state == ReplicaPhase::kWaiting) {
      free -= start_pages(turn.world, replica);
    }
  }
  return map_->footprint(load.model).image_pages <= free;
}

void LivePlane::refuse(const core::LoadOn& load, Error reason) {
  LiveDevice& place = device(load.device);
  const std::uint64_t version = place.surprise();
  touch(place.id(), true);
  report(place,
         core::LoadRefused{.model = load.model, .version = version, .reason = std::move(reason)});
}

/// As live loads are made: out of host memory, through all GPUs of the server where that is
/// possible; else over its network, which leaves the image in its memory. A prewarm gives way to
/// what is waited for, and so does the whole of a model that runs in stages.
StartSpec LivePlane::start_spec(const Turn& turn, const Gathering& parts) const {
  const core::LoadOn& first = parts.begin()->second;
  const LiveMap::Part& part = map_->part(first.model);
  StartSpec spec{.model = part.model};
  std::vector<GpuId> gpus;
  for (const auto& [at, load] : parts) {
    gpus.push_back(map_->gpu(load.device));
  }
  const HostSpec& host = turn.world.host_spec(gpus.front());
  const bool cached = turn.world.cached(turn.world.gpu(gpus.front()).host, part.model);
  if (part.stage) {
    const double weights = 1 / static_cast<double>(part.of);
    for (const GpuId gpu : gpus) {
      spec.stages.push_back({.gpus = {gpu}, .weights = weights});
    }
    spec.source = WeightSource::kRemote;
    spec.beside = from_seconds(host.startup.group);
  } else {
    spec.stages = {{.gpus = gpus}};
    spec.source = !cached                                     ? WeightSource::kRemote
                  : gpus.size() == 1 && host.links.spread > 0 ? WeightSource::kSpread
                                                              : WeightSource::kHost;
    spec.cache_image = !cached;
    spec.beside = gpus.size() > 1 ? from_seconds(host.startup.communicator) : Duration{};
  }
  spec.after = from_seconds(host.startup.attach);
  spec.deadline = turn.world.now() + first.due_in;
  const bool in_stages = std::ranges::any_of(ordered_, [&](const auto& entry) {
    const LiveMap::Part& other = map_->part(entry.second.places.front().second);
    return other.stage && other.model == part.model;
  });
  spec.link_class = first.early                ? LinkClass::kPrewarm
                    : in_stages && !part.stage ? LinkClass::kConsolidation
                                               : LinkClass::kActivation;
  return spec;
}

void LivePlane::start(const Turn& turn, const Gathering& parts) {
  const core::LoadOn& first = parts.begin()->second;
  const auto noted = noted_.find({first.device, first.model});
  const ReplicaId id = turn.actions.start(
      start_spec(turn, parts), reason_of(noted == noted_.end() ? nullptr : &noted->second));
  Ordered& ordered = ordered_[id];
  ordered.early = first.early;
  for (const auto& [at, load] : parts) {
    ordered.places.emplace_back(load.device, load.model);
    device(load.device).residents()[load.model].replica = id;
    touch(load.device, true);
  }
  opening_.insert(id);
}

/// Loads that wait for pages begin when these are there, or are refused once nothing goes that
/// could bring them.
void LivePlane::open(const Turn& turn) {
  for (const ReplicaId id : std::set<ReplicaId>(opening_)) {
    const Replica* replica = turn.world.replica(id);
    if (replica == nullptr) {
      opening_.erase(id);  // What becomes of it is told by its own notice.
      continue;
    }
    if (replica->state == ReplicaPhase::kWaiting) {
      const bool frees = std::ranges::any_of(replica->gpus, [&](GpuId gpu) {
        return std::ranges::any_of(turn.world.gpu(gpu).replicas, [&](ReplicaId other) {
          return turn.world.replica(other)->state == ReplicaPhase::kEvicting;
        });
      });
      if (!frees) {
        refuse_waiting(turn, id);
      }
      continue;
    }
    opening_.erase(id);
    for (const auto& [place, model] : ordered_.at(id).places) {
      touch(place, true);
      report(device(place), core::ModelServing{.model = model});
    }
  }
}

void LivePlane::refuse_waiting(const Turn& turn, ReplicaId id) {
  opening_.erase(id);
  const Ordered refused = ordered_.extract(id).mapped();
  for (const auto& [place, model] : refused.places) {
    LiveDevice& there = device(place);
    for (const LiveDevice::Waiting& each : there.take(turn.world, model)) {
      give_back(there, each, false);
    }
    const bool going = there.residents().extract(model).mapped().going;
    if (going) {
      report(there, core::ModelEvicted{.model = model});
      touch(place, true);
    } else {
      refuse({.device = place, .model = model}, {Code::kResourceExhausted, "no room"});
    }
  }
  turn.actions.evict(id, Reason::kPressure, std::nullopt);
}

/// All weights are there, and an engine with them.
void LivePlane::served(const Turn& turn, const Notice& notice) {
  if (const auto engine = engine_of(notice.replica)) {
    if (notice.kind == NoticeKind::kServing) {
      engine_serves(turn, *engine);
    }
    return;
  }
  const auto found = ordered_.find(notice.replica);
  const Replica& replica = *turn.world.replica(notice.replica);
  if (found == ordered_.end()) {
    return;
  }
  if (notice.kind == NoticeKind::kWarm &&
      !turn.actions.serve(notice.replica, Duration(1), Reason::kRunning)) {
    for (const auto& [place, model] : found->second.places) {
      device(place).residents().at(model).going = true;
    }
    turn.actions.evict(notice.replica, Reason::kPressure, std::nullopt);
  }
  for (const auto& [place, model] : found->second.places) {
    touch(place, true);
  }
  if (replica.spec.cache_image) {
    tell_images(turn, turn.world.gpu(replica.gpus[0]).host);
  }
}

/// The workers of a group run in lockstep from now on: those of the world always do.
void LivePlane::perform(const Turn& /*turn*/, const core::FormGroup& form) {
  const core::GroupMember& leader = form.members.front();
  hear(core::GroupFormed{.device = leader.device,
                         .epoch = leader.epoch,
                         .model = leader.model,
                         .members = form.members});
}

// ---- Who goes ----

void LivePlane::perform(const Turn& turn, const core::EvictFrom& evict) {
  if (map_->engine(evict.model) != nullptr) {
    return take_out(turn, evict);
  }
  LiveDevice& place = device(evict.device);
  if (!place.lives(evict.basis.epoch)) {
    return;
  }
  if (evict.mode == core::EvictMode::kWhenIdle && evict.basis.version != place.version()) {
    const std::uint64_t version = place.surprise();
    touch(place.id(), true);
    return report(place,
                  core::EvictRefused{.model = evict.model,
                                     .version = version,
                                     .reason = {Code::kFailedPrecondition, "stale"}});
  }
  LiveDevice::Resident* resident = place.resident(evict.model);
  if (resident == nullptr || !resident->replica) {
    const LiveMap::Part& part = map_->part(evict.model);
    if (resident != nullptr) {  // The rest of it has not been ordered.
      const DeviceId leader =
          part.stage ? DeviceId{} : map_->block(evict.model, evict.device).front();
      gathering_[{part.first, leader}].erase(part.at);
      place.residents().erase(evict.model);
    }
    touch(place.id(), true);
    return report(place, core::ModelEvicted{.model = evict.model});
  }
  if (resident->going) {
    return;  // It is told once, when it has gone.
  }
  const ReplicaId id = *resident->replica;
  for (const auto& [there, model] : ordered_.at(id).places) {
    LiveDevice& other = device(there);
    other.residents().at(model).going = true;
    for (const LiveDevice::Waiting& each : other.take(turn.world, model)) {
      give_back(other, each, false);
    }
    touch(there, true);
  }
  const auto noted = noted_.find({evict.device, evict.model});
  std::optional<ModelId> whom;
  if (noted != noted_.end() && noted->second.for_model) {
    whom = map_->part(*noted->second.for_model).model;
  }
  turn.actions.evict(id, whom ? Reason::kMakeRoom : Reason::kIdle, whom);
}

void LivePlane::gone(const Turn& turn, const Notice& notice) {
  find_dead(turn);
  if (const auto engine = engine_of(notice.replica)) {
    return engine_gone(*engine);
  }
  const auto found = ordered_.find(notice.replica);
  if (found == ordered_.end()) {
    return;  // It was refused, or its worker has died.
  }
  for (const auto& [place, model] : found->second.places) {
    if (!device(place).residents().at(model).going) {
      return die(turn, place);  // Nobody ordered that.
    }
  }
  const Ordered ended = ordered_.extract(found).mapped();
  opening_.erase(notice.replica);
  for (const auto& [place, model] : ended.places) {
    device(place).residents().erase(model);
    touch(place, true);
    report(device(place), core::ModelEvicted{.model = model});
  }
}

// ---- Host memory ----

/// Tells of images that have come into a host's memory, or gone from it, since it was last told.
void LivePlane::tell_images(const Turn& turn, HostId host) {
  std::set<ModelId>& known = images_[host];
  std::set<ModelId> there;
  for (const auto& [model, image] : turn.world.host(host).cache) {
    if (!turn.world.model(model).external) {  // An engine's image is its own affair.
      there.insert(model);
    }
  }
  const auto tell = [&](ModelId model, bool cached) {
    for (const ModelId part : map_->parts_of(model)) {
      hear(core::ImageState{.model = part,
                            .bytes = cached ? map_->image_bytes(part) : 0,
                            .host_cached = cached,
                            .host = map_->host(host)});
    }
  };
  for (const ModelId model : known) {
    if (!there.contains(model)) {
      tell(model, false);
    }
  }
  for (const ModelId model : there) {
    if (!known.contains(model)) {
      tell(model, true);
    }
  }
  known = std::move(there);
}

}  // namespace heddle::sim
