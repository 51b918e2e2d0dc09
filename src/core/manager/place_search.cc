#include "core/manager/place_search.h"

#include <algorithm>
#include <limits>
#include <set>

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
using policy::Plan;

/// Of devices that cannot have a model at once, so many are looked at for what is told of them.
constexpr int kOthersLooked = 4;

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

/// How the model's devices are compared.
PlacementOptions compared(const State& state, ModelId id, const Field& field) {
  Duration soonest{};
  if (!field.devices.empty()) {
    const HostId host = field.hosts.soonest();
    const auto there = std::ranges::find(
        field.devices, host, [](const DeviceState* device) { return host_of(device->config.id); });
    soonest = load_time(state, state.models.at(id), **there);
  }
  return placing(state, id, field.load_takes, soonest);
}

/// Nobody would lose anything by the load there.
bool for_nothing(const PlacementDevice& place) {
  return place.free_pages >= place.need_pages &&
         std::ranges::none_of(place.residents, [](const auto& resident) {
           return resident.displaced || resident.runs_alone;
         });
}

/// The plan that a device allows; what is lost is known where busy models would go.
Plan drain_plan(const State& state,
                PlacementDevice& place,
                Instant since,
                const PlacementOptions& options) {
  Plan plan = policy::plan_on(place, state.now, since, options);
  if (plan.outcome != PlacementOutcome::kDrain || for_nothing(place)) {
    return plan;
  }
  weigh(state, state.devices.at(place.id), place);
  return policy::plan_on(place, state.now, since, options);
}

policy::PlanPicker picker_for(const State& state, ModelId id, const PlacementOptions& options) {
  return policy::PlanPicker(policy::plan_options(options), [&state, id](const Plan& plan) {
    return pressure(state, state.devices.at(plan.where), id);
  });
}

/// A load at once, wherever that is best; nullopt: there is none.
std::optional<policy::PlanChoice> choose_load(const State& state,
                                              ModelId id,
                                              const Field& field,
                                              Instant since,
                                              const PlacementOptions& options) {
  const ModelState& model = state.models.at(id);
  policy::PlanPicker picker = picker_for(state, id, options);
  int others = 0;
  for (const DeviceState* device : field.devices) {
    const bool may = may_load(state, model, *device);
    if (!may && ++others > kOthersLooked) {
      continue;
    }
    PlacementDevice place = outline_in(state, id, *device, field.hosts);
    if (may && !for_nothing(place)) {
      weigh(state, *device, place);
    }
    picker.add(policy::plan_on(place, state.now, since, options));
  }
  policy::PlanChoice choice = picker.choose();
  const bool loads = choice.best && choice.best->outcome == PlacementOutcome::kLoad;
  return loads ? std::optional(std::move(choice)) : std::nullopt;
}

void take_over(policy::PlanChoice&& plans, PlaceChoice& choice) {
  choice.placement = policy::placement_of(plans);
  choice.plan = std::move(plans.best);
  choice.others = std::move(plans.others);
}

}  // namespace

ReplicaChoice choose_replica(const State& state, ModelId model) {
  Field field = field_beside(state, model);
  const PlacementOptions options{.drain_after = state.options.drain_after,
                                 .load = field.load_takes};
  const auto slow = [&](ModelId victim) { return state.models.at(victim).external(); };
  auto choice = choose_load(state, model, field, state.now, options);
  while (choice && std::ranges::any_of(choice->best->victims, slow)) {
    std::erase_if(field.devices, [&](const DeviceState* device) {
      return device->config.id == choice->best->where;
    });
    choice = choose_load(state, model, field, state.now, options);
  }
  return {.placement = choice ? policy::placement_of(*choice) : Placement{},
          .load_takes = field.load_takes};
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
  PlaceChoice choice{.compared = compared(state_, id, field),
                     .fits_elsewhere = field.fits_elsewhere,
                     .paused_until = field.paused_until};
  const PlacementOptions& options = choice.compared;
  if (auto load = choose_load(state_, id, field, since, options)) {
    take_over(std::move(*load), choice);
    return choice;
  }
  Waiting waiting{.seen = state_.index.forgotten + state_.index.changed.size(),
                  .need = need,
                  .since = since,
                  .choice = choice};
  policy::PlanPicker drains = picker_for(state_, id, options);
  bool drained = false;
  for (const DeviceState* device : field.devices) {
    PlacementDevice place = outline_in(state_, id, *device, field.hosts);
    Plan plan = drain_plan(state_, place, since, options);
    drained = drained || plan.outcome == PlacementOutcome::kDrain;
    if (!drained) {
      waiting.looks.push_back({.device = device->config.id,
                               .outcome = plan.outcome,
                               .reason = plan.reason,
                               .retry_at = plan.not_before,
                               .paused_until = device->paused_until,
                               .owed_until = device->owed.until});
    }
    drains.add(std::move(plan));
  }
  if (drained) {
    take_over(drains.choose(), choice);
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
    for (const Instant until : {look.paused_until, look.owed_until}) {
      if (until > now) {
        waiting.next = std::min(waiting.next, until);
      }
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
  const Plan plan = policy::plan_on(
      outline(state_, device, id),
      state_.now,
      since,
      {.drain_after = state_.options.drain_after, .stays = stay_time(state_.models.at(id))});
  if (plan.takes()) {
    return std::nullopt;
  }
  return Look{.device = device.config.id,
              .outcome = plan.outcome,
              .reason = plan.reason,
              .retry_at = plan.not_before,
              .paused_until = device.paused_until,
              .owed_until = device.owed.until};
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
