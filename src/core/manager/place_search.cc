#include "core/manager/place_search.h"

#include <algorithm>
#include <limits>
#include <set>
#include <span>

#include "base/check.h"
#include "core/manager/images.h"
#include "core/manager/models.h"
#include "core/manager/pages.h"
#include "core/manager/value.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

using policy::Placement;
using policy::PlacementDevice;
using policy::PlacementOptions;
using policy::PlacementOutcome;

/// The devices among which a model chooses.
struct Field {
  std::vector<const DeviceState*> devices{};  // Ascending.
  HostWeights hosts{};
  Duration load_takes{};
  std::int64_t fits_elsewhere = 0;
  std::optional<Instant> paused_until{};
};

/// Tokens that fit on a device alone: it is said of devices one after the other, many alike.
class Rooms {
 public:
  explicit Rooms(const ModelState& model) : model_(model) {}
  std::int64_t on(const policy::Footprint& footprint, std::int64_t pages) {
    if (footprint_ != &footprint || pages_ != pages) {
      footprint_ = &footprint;
      pages_ = pages;
      room_ = tokens_in(model_, footprint, pages);
    }
    return room_;
  }

 private:
  const ModelState& model_;
  const policy::Footprint* footprint_ = nullptr;
  std::int64_t pages_ = 0;
  std::int64_t room_ = 0;
};

void add(const State& state, const ModelState& model, const DeviceState& device, Field& field) {
  field.devices.push_back(&device);
  field.hosts.add(state, model.config.id, host_of(device.config.id));
  if (device.paused_until > state.now &&
      (!field.paused_until || device.paused_until < *field.paused_until)) {
    field.paused_until = device.paused_until;
  }
}

Field field_for(const State& state, ModelId id, std::int64_t need) {
  const ModelState& model = state.models.at(id);
  Field field;
  Rooms rooms(model);
  const LoadTimes load_times(state, model);
  for (const Seat& seat : model.footprints.seats()) {
    const DeviceState& device = state.devices.at(seat.device);
    const std::int64_t room = rooms.on(model.footprints.shapes()[seat.shape], device.config.pages);
    if (need > room) {
      field.fits_elsewhere = std::max(field.fits_elsewhere, room);
      continue;
    }
    add(state, model, device, field);
    if (state.options.planner.value) {
      field.load_takes = std::max(field.load_takes, load_times.on(device));
    }
  }
  return field;
}

Field field_beside(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  Field field;
  const LoadTimes load_times(state, model);
  auto spot = model.spots.begin();
  for (const Seat& seat : model.footprints.seats()) {
    while (spot != model.spots.end() && spot->id < seat.device) {
      ++spot;
    }
    const DeviceState& device = state.devices.at(seat.device);
    const bool here = spot != model.spots.end() && spot->id == seat.device;
    if (!here && !device.dedicated) {
      add(state, model, device, field);
      field.load_takes = std::max(field.load_takes, load_times.on(device));
    }
  }
  return field;
}

/// Whether it is not plain from the index that the device cannot have the model at once.
bool may_load(const State& state, const ModelState& model, const DeviceState& device) {
  return device.up && !device.leaving && !device.plan && !device.alone &&
         state.now >= device.paused_until &&
         device.at_most >= policy::pages_to_load(*model.need_on(device));
}

PlacementDevice outline_in(const State& state,
                           ModelId id,
                           const DeviceState& device,
                           const HostWeights& hosts) {
  PlacementDevice place = outline(state, device, id);
  hosts.weigh(place);
  return place;
}

Placement alone(const PlacementDevice& place,
                Instant now,
                Instant since,
                const PlacementOptions& options) {
  return policy::choose_placement({&place, 1}, now, since, options);
}

/// The choice among outlines of which each allows the same.
Placement choose_among(const State& state,
                       ModelId model,
                       std::vector<PlacementDevice>& places,
                       Instant since,
                       const PlacementOptions& options) {
  for (PlacementDevice& place : places) {
    const bool for_nothing = place.free_pages >= place.need_pages &&
                             std::ranges::none_of(place.residents, [](const auto& resident) {
                               return resident.displaced || resident.runs_alone;
                             });
    if (!for_nothing) {  // Else nobody loses anything.
      weigh(state, state.devices.at(place.id), place);
    }
  }
  return policy::choose_placement(
      places, state.now, since, options, [&](const PlacementDevice& place) {
        return pressure(state, state.devices.at(place.id), model);
      });
}

/// A load at once, wherever that is best.
std::optional<Placement> choose_load(const State& state,
                                     ModelId id,
                                     const Field& field,
                                     Instant since,
                                     const PlacementOptions& options) {
  const ModelState& model = state.models.at(id);
  std::vector<PlacementDevice> places;
  for (const DeviceState* device : field.devices) {
    if (!may_load(state, model, *device)) {
      continue;
    }
    PlacementDevice place = outline_in(state, id, *device, field.hosts);
    if (alone(place, state.now, since, options).outcome == PlacementOutcome::kLoad) {
      places.push_back(std::move(place));
    }
  }
  return places.empty() ? std::nullopt
                        : std::optional(choose_among(state, id, places, since, options));
}

}  // namespace

ReplicaChoice choose_replica(const State& state, ModelId model) {
  Field field = field_beside(state, model);
  const PlacementOptions options{.drain_after = state.options.drain_after,
                                 .load = field.load_takes};
  const auto slow = [&](ModelId victim) { return state.models.at(victim).external(); };
  auto placement = choose_load(state, model, field, state.now, options);
  while (placement && std::ranges::any_of(placement->victims, slow)) {
    std::erase_if(field.devices, [&](const DeviceState* device) {
      return device->config.id == placement->device;
    });
    placement = choose_load(state, model, field, state.now, options);
  }
  return {.placement = placement.value_or(Placement{}), .load_takes = field.load_takes};
}

PlaceChoice PlaceSearch::choose(ModelId id, std::int64_t need, Instant since) {
  const auto known = waiting_.find(id);
  if (known != waiting_.end()) {
    if (known->second.need == need && known->second.since == since &&
        look_again(id, known->second)) {
      return known->second.choice;
    }
    waiting_.erase(known);
  }
  const Field field = field_for(state_, id, need);
  const PlacementOptions options{.drain_after = state_.options.drain_after,
                                 .load = field.load_takes};
  PlaceChoice choice{.fits_elsewhere = field.fits_elsewhere, .paused_until = field.paused_until};
  if (auto load = choose_load(state_, id, field, since, options)) {
    choice.placement = std::move(*load);
    return choice;
  }
  Waiting waiting{.seen = state_.index.forgotten + state_.index.changed.size(),
                  .need = need,
                  .since = since,
                  .choice = choice};
  std::vector<PlacementDevice> drains;
  for (const DeviceState* device : field.devices) {
    PlacementDevice place = outline_in(state_, id, *device, field.hosts);
    const Placement one = alone(place, state_.now, since, options);
    if (one.outcome == PlacementOutcome::kDrain) {
      drains.push_back(std::move(place));
    } else if (drains.empty()) {
      waiting.looks.push_back({.device = device->config.id,
                               .outcome = one.outcome,
                               .reason = one.reason,
                               .retry_at = one.retry_at,
                               .paused_until = device->paused_until});
    }
  }
  if (!drains.empty()) {
    choice.placement = choose_among(state_, id, drains, since, options);
    return choice;
  }
  conclude(waiting, state_.now);
  choice = waiting.choice;
  // What others fetch meanwhile may change where it may be fetched.
  if (choice.placement.outcome == PlacementOutcome::kWait &&
      state_.models.at(id).config.fetched.empty()) {
    waiting_[id] = std::move(waiting);
  }
  return choice;
}

/// What choose_placement makes of devices of which none can have it now.
void PlaceSearch::conclude(Waiting& waiting, Instant now) {
  Placement& all = waiting.choice.placement;
  all = {.outcome = PlacementOutcome::kNever, .reason = policy::PlacementReason::kTooLarge};
  waiting.next = Instant::max();
  bool first = true;
  std::optional<Instant> retry_at;
  for (const Look& look : waiting.looks) {
    if (first || std::pair(look.outcome, look.reason) < std::pair(all.outcome, all.reason)) {
      all.outcome = look.outcome;
      all.reason = look.reason;
      first = false;
    }
    if (look.retry_at && (!retry_at || *look.retry_at < *retry_at)) {
      retry_at = look.retry_at;
    }
    if (look.paused_until > now) {
      waiting.next = std::min(waiting.next, look.paused_until);
    }
  }
  waiting.next = std::min(waiting.next, retry_at.value_or(Instant::max()));
  if (all.outcome == PlacementOutcome::kWait) {
    all.retry_at = retry_at;
  }
}

/// nullopt: it can be had, now or by draining.
std::optional<PlaceSearch::Look> PlaceSearch::look(ModelId id,
                                                   Instant since,
                                                   const DeviceState& device) const {
  const Placement one = alone(
      outline(state_, device, id), state_.now, since, {.drain_after = state_.options.drain_after});
  if (one.outcome != PlacementOutcome::kWait && one.outcome != PlacementOutcome::kNever) {
    return std::nullopt;
  }
  return Look{.device = device.config.id,
              .outcome = one.outcome,
              .reason = one.reason,
              .retry_at = one.retry_at,
              .paused_until = device.paused_until};
}

bool PlaceSearch::look_again(ModelId id, Waiting& waiting) {
  const Index& index = state_.index;
  if (waiting.seen < index.forgotten || state_.now >= waiting.next) {
    return false;
  }
  const auto fresh = static_cast<std::ptrdiff_t>(waiting.seen - index.forgotten);
  std::set<DeviceId> devices(index.changed.begin() + fresh, index.changed.end());
  devices.insert(index.mixed.begin(), index.mixed.end());
  waiting.seen = index.forgotten + index.changed.size();
  for (const DeviceId each : devices) {
    const auto known = std::ranges::lower_bound(waiting.looks, each, {}, &Look::device);
    if (known == waiting.looks.end() || known->device != each) {
      continue;  // It has too little room.
    }
    const auto now = look(id, waiting.since, state_.devices.at(each));
    if (!now || now->paused_until != known->paused_until) {
      return false;
    }
    *known = *now;
  }
  if (!devices.empty()) {
    conclude(waiting, state_.now);
  }
  return waiting.choice.placement.outcome == PlacementOutcome::kWait;
}

void PlaceSearch::prune() {
  std::erase_if(waiting_,
                [this](const auto& entry) { return !state_.index.unplaced.contains(entry.first); });
}

void PlaceSearch::check() const {
  for (const auto& [id, waiting] : waiting_) {
    const bool current = waiting.seen == state_.index.forgotten + state_.index.changed.size() &&
                         state_.index.unplaced.contains(id) && state_.index.mixed.empty() &&
                         state_.now < waiting.next &&
                         waiting.need == longest_waiting(state_, state_.models.at(id));
    if (!current) {
      continue;
    }
    const Placement remembered = waiting.choice.placement;
    const PlaceChoice anew = PlaceSearch(state_).choose(id, waiting.need, waiting.since);
    HEDDLE_CHECK(anew.placement == remembered);
    HEDDLE_CHECK(anew.paused_until == waiting.choice.paused_until);
    HEDDLE_CHECK(anew.fits_elsewhere == waiting.choice.fits_elsewhere);
  }
}

}  // namespace heddle::core::manager
