#include "policy/placement.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace heddle::policy {
namespace {

/// How a device could take the model, as far as that is decided on the device alone.
struct Offer {
  Placement placement{};
  std::int64_t victims_queue = 0;
  std::int64_t victims_pages = 0;
  double lost = 0;  ///< Worth of the victims, and of what cannot run meanwhile [s].
  Duration missing{};
  bool short_of_pages = false;
  double pressure = 0;  ///< Once it was asked.
  std::int64_t free_pages = 0;
  [[nodiscard]] bool takes() const {
    return placement.outcome != PlacementOutcome::kWait &&
           placement.outcome != PlacementOutcome::kNever;
  }
};

Offer offer_of(const PlacementDevice& device,
               PlacementOutcome outcome,
               PlacementReason reason,
               const std::vector<ResidentView>& victims) {
  Offer offer{.placement = {.outcome = outcome, .reason = reason, .device = device.id},
              .missing = device.missing,
              .short_of_pages = device.short_of_pages,
              .free_pages = device.free_pages};
  for (const ResidentView& victim : victims) {
    offer.placement.victims.push_back(victim.model);
    offer.victims_queue += victim.queue;
    offer.victims_pages += victim.pages;
    offer.lost += victim.worth;
  }
  for (const ResidentView& resident : device.residents) {
    const bool goes = std::any_of(victims.begin(), victims.end(), [&](const auto& victim) {
      return victim.model == resident.model;
    });
    offer.lost += resident.runs_alone && !goes ? resident.worth : 0;
  }
  return offer;
}

Offer wait(PlacementReason reason, std::optional<Instant> retry_at = std::nullopt) {
  return {
      .placement = {.outcome = PlacementOutcome::kWait, .reason = reason, .retry_at = retry_at}};
}

/// When the next of the conditions on busy models changes.
std::optional<Instant> next_chance(const std::vector<ResidentView>& busy,
                                   Instant now,
                                   Instant patience_ends) {
  std::optional<Instant> next;
  const auto consider = [&](Instant at) {
    if (at > now && (!next || at < *next)) {
      next = at;
    }
  };
  consider(patience_ends);
  for (const ResidentView& resident : busy) {
    consider(resident.serving_since + resident.min_residence);
  }
  return next;
}

/// Busy models stay for their minimum residence; external engines also when they are idle,
/// as bringing them back takes seconds.
bool may_go(const ResidentView& resident, Instant now) {
  return (resident.queue == 0 && resident.swap == Duration{}) ||
         now >= resident.serving_since + resident.min_residence;
}

std::ptrdiff_t count_displaced(const std::vector<ResidentView>& residents) {
  return std::count_if(residents.begin(), residents.end(), [](const ResidentView& resident) {
    return resident.displaced;
  });
}

/// What can be had from models that serve: by draining, once fairness and residence allow.
Offer offer_by_draining(const PlacementDevice& device,
                        const std::vector<ResidentView>& candidates,
                        Instant now,
                        Instant patience_ends) {
  const auto stayed = [now](const ResidentView& resident) { return may_go(resident, now); };
  if (now >= patience_ends) {
    std::vector<ResidentView> willing;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(willing), stayed);
    const bool all_go = count_displaced(willing) == count_displaced(candidates);
    const auto victims =
        all_go ? least_valuable(willing, device.free_pages, device.need_pages, now) : std::nullopt;
    if (victims) {
      return offer_of(device, PlacementOutcome::kDrain, PlacementReason::kBusyVictims, *victims);
    }
  }
  if (!least_valuable(candidates, device.free_pages, device.need_pages, now)) {
    return wait(PlacementReason::kTransition);
  }
  return wait(now < patience_ends ? PlacementReason::kFairness : PlacementReason::kResidence,
              next_chance(candidates, now, patience_ends));
}

Offer offer_from(const PlacementDevice& device, Instant now, Instant patience_ends) {
  if (device.serving) {
    return offer_of(device, PlacementOutcome::kServe, PlacementReason::kServing, {});
  }
  std::int64_t pinned_pages = 0;
  std::vector<ResidentView> candidates;
  std::vector<ResidentView> idle;
  for (const ResidentView& resident : device.residents) {
    if (resident.pinned) {
      pinned_pages += resident.pages;
    } else if (!resident.in_transition) {
      candidates.push_back(resident);
      if (resident.queue == 0 && may_go(resident, now)) {
        idle.push_back(resident);
      }
    }
  }
  if (device.need_pages > device.pages || device.need_pages > device.pages - pinned_pages) {
    const bool alone = device.need_pages <= device.pages;
    return {.placement = {.outcome = PlacementOutcome::kNever,
                          .reason = alone ? PlacementReason::kPinned : PlacementReason::kTooLarge}};
  }
  if (!device.available) {
    return wait(PlacementReason::kTransition);
  }
  // One that comes or goes cannot be sent away now, and must not stay.
  const bool undecided = std::any_of(
      device.residents.begin(), device.residents.end(), [](const ResidentView& resident) {
        return resident.displaced && resident.in_transition && !resident.pinned;
      });
  if (undecided) {
    return wait(PlacementReason::kTransition);
  }
  const std::ptrdiff_t displaced = count_displaced(candidates);
  if (displaced == 0 && device.free_pages >= device.need_pages) {
    return offer_of(device, PlacementOutcome::kLoad, PlacementReason::kFreePages, {});
  }
  const bool only_idle_go = displaced == count_displaced(idle);
  const auto victims =
      only_idle_go ? least_valuable(idle, device.free_pages, device.need_pages, now) : std::nullopt;
  if (victims) {
    return offer_of(device, PlacementOutcome::kLoad, PlacementReason::kIdleVictims, *victims);
  }
  return offer_by_draining(device, candidates, now, patience_ends);
}

/// Parts of a load that are worth losing for a better place.
constexpr double kLostLoad = 0.1;

/// Lower is better. Outcomes and reasons are declared in order of preference. What is told before
/// KV pressure is.
auto rank_before(const Offer& offer, Duration load) {
  const double step = kLostLoad * to_seconds(load);
  const bool weighed = offer.placement.outcome == PlacementOutcome::kLoad && step > 0;
  const double missing = to_seconds(offer.missing);
  return std::tuple(offer.placement.outcome,
                    offer.short_of_pages,
                    weighed ? std::floor((offer.lost + missing) / step) : missing,
                    weighed ? PlacementReason::kFreePages : offer.placement.reason,
                    offer.victims_queue);
}

auto rank_after(const Offer& offer) {
  return std::tuple(offer.pressure, offer.victims_pages, -offer.free_pages, offer.placement.device);
}

}  // namespace

std::string_view reason_name(PlacementReason reason) {
  switch (reason) {
    case PlacementReason::kServing:
      return "serving";
    case PlacementReason::kFreePages:
      return "free_pages";
    case PlacementReason::kIdleVictims:
      return "idle_victims";
    case PlacementReason::kBusyVictims:
      return "busy_victims";
    case PlacementReason::kFairness:
      return "fairness";
    case PlacementReason::kResidence:
      return "residence";
    case PlacementReason::kTransition:
      return "transition";
    case PlacementReason::kPinned:
      return "pinned";
    case PlacementReason::kTooLarge:
      return "too_large";
  }
  return "?";
}

Placement choose_placement(std::span<const PlacementDevice> devices,
                           Instant now,
                           Instant waiting_since,
                           const PlacementOptions& options) {
  return choose_placement(devices, now, waiting_since, options, [](const PlacementDevice& device) {
    return device.pressure;
  });
}

Placement choose_placement(std::span<const PlacementDevice> devices,
                           Instant now,
                           Instant waiting_since,
                           const PlacementOptions& options,
                           const std::function<double(const PlacementDevice&)>& pressure_of) {
  std::optional<Offer> best;
  const PlacementDevice* best_device = nullptr;
  bool best_told = false;  // Its pressure.
  std::optional<Instant> retry_at;
  for (const PlacementDevice& device : devices) {
    HEDDLE_CHECK(device.need_pages > 0);
    Offer offer = offer_from(device, now, waiting_since + options.drain_after);
    const std::optional<Instant> chance = offer.placement.retry_at;
    if (chance && (!retry_at || *chance < *retry_at)) {
      retry_at = chance;
    }
    const auto order = best ? rank_before(offer, options.load) <=> rank_before(*best, options.load)
                            : std::partial_ordering::less;
    const bool even = best && order == 0 && offer.takes();
    if (even) {
      best->pressure = best_told ? best->pressure : pressure_of(*best_device);
      offer.pressure = pressure_of(device);
    }
    if (order < 0 || (order == 0 && rank_after(offer) < rank_after(*best))) {
      best = std::move(offer);
      best_device = &device;
      best_told = even;
    } else {
      best_told = best_told || even;
    }
  }
  if (!best) {
    return {.outcome = PlacementOutcome::kNever, .reason = PlacementReason::kTooLarge};
  }
  if (best->placement.outcome == PlacementOutcome::kWait) {
    best->placement.retry_at = retry_at;
  }
  return std::move(best->placement);
}

}  // namespace heddle::policy
