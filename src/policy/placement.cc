#include "policy/placement.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace heddle::policy {
namespace {

/// What all plans on the device have in common.
Plan plan_there(const PlacementDevice& device, const PlacementOptions& options) {
  return {.kind = options.kind,
          .where = device.id,
          .load = options.soonest + device.missing,
          .first = options.first,
          .short_of_pages = device.short_of_pages,
          .free_pages = device.free_pages,
          .pressure = device.pressure};
}

Plan plan_without(const PlacementDevice& device,
                  const PlacementOptions& options,
                  PlacementOutcome outcome,
                  PlacementReason reason,
                  const std::vector<ResidentView>& victims) {
  Plan plan = plan_there(device, options);
  plan.outcome = outcome;
  plan.reason = reason;
  for (const ResidentView& victim : victims) {
    plan.victims.push_back(victim.model);
    plan.victims_queue += victim.queue;
    plan.victims_pages += victim.pages;
    plan.lost += victim.worth;
    plan.leave = std::max(plan.leave, victim.leaves);
  }
  for (const ResidentView& resident : device.residents) {
    const bool goes = std::any_of(victims.begin(), victims.end(), [&](const auto& victim) {
      return victim.model == resident.model;
    });
    plan.lost += resident.runs_alone && !goes ? resident.worth : 0;
  }
  return plan;
}

Plan wait(const PlacementDevice& device,
          const PlacementOptions& options,
          PlacementReason reason,
          std::optional<Instant> not_before = std::nullopt) {
  return {.kind = options.kind, .reason = reason, .where = device.id, .not_before = not_before};
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
Plan plan_to_drain(const PlacementDevice& device,
                   const std::vector<ResidentView>& candidates,
                   Instant now,
                   Instant patience_ends,
                   const PlacementOptions& options) {
  const auto stayed = [now](const ResidentView& resident) { return may_go(resident, now); };
  if (now >= patience_ends) {
    std::vector<ResidentView> willing;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(willing), stayed);
    const bool all_go = count_displaced(willing) == count_displaced(candidates);
    const auto victims =
        all_go ? least_valuable(willing, device.free_pages, device.need_pages, now) : std::nullopt;
    if (victims) {
      return plan_without(
          device, options, PlacementOutcome::kDrain, PlacementReason::kBusyVictims, *victims);
    }
  }
  if (!least_valuable(candidates, device.free_pages, device.need_pages, now)) {
    return wait(device, options, PlacementReason::kTransition);
  }
  return wait(device,
              options,
              now < patience_ends ? PlacementReason::kFairness : PlacementReason::kResidence,
              next_chance(candidates, now, patience_ends));
}

/// Of a device that is kept for nobody.
Plan plan_unreserved(const PlacementDevice& device,
                     Instant now,
                     Instant waiting_since,
                     const PlacementOptions& options) {
  HEDDLE_CHECK(device.need_pages > 0);
  if (device.serving) {
    return {.kind = PlanKind::kHit,
            .outcome = PlacementOutcome::kServe,
            .reason = PlacementReason::kServing,
            .where = device.id,
            .first = options.first,
            .short_of_pages = device.short_of_pages,
            .free_pages = device.free_pages,
            .pressure = device.pressure};
  }
  std::int64_t pinned_pages = 0;
  std::vector<ResidentView> candidates;
  candidates.reserve(device.residents.size());
  std::vector<ResidentView> idle;
  idle.reserve(device.residents.size());
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
    Plan never =
        wait(device, options, alone ? PlacementReason::kPinned : PlacementReason::kTooLarge);
    never.outcome = PlacementOutcome::kNever;
    return never;
  }
  if (!device.available) {
    return wait(device, options, PlacementReason::kTransition);
  }
  // One that comes or goes cannot be sent away now, and must not stay.
  const bool undecided = std::any_of(
      device.residents.begin(), device.residents.end(), [](const ResidentView& resident) {
        return resident.displaced && resident.in_transition && !resident.pinned;
      });
  if (undecided) {
    return wait(device, options, PlacementReason::kTransition);
  }
  const std::ptrdiff_t displaced = count_displaced(candidates);
  if (displaced == 0 && device.free_pages >= device.need_pages) {
    return plan_without(device, options, PlacementOutcome::kLoad, PlacementReason::kFreePages, {});
  }
  const bool only_idle_go = displaced == count_displaced(idle);
  const auto victims =
      only_idle_go ? least_valuable(idle, device.free_pages, device.need_pages, now) : std::nullopt;
  if (victims) {
    return plan_without(
        device, options, PlacementOutcome::kLoad, PlacementReason::kIdleVictims, *victims);
  }
  return plan_to_drain(device, candidates, now, waiting_since + options.drain_after, options);
}

}  // namespace

PlanOptions plan_options(const PlacementOptions& options) {
  return {.ttft_left = options.ttft_left,
          .soonest = options.soonest + options.first,
          .load = options.load};
}

Plan plan_on(const PlacementDevice& device,
             Instant now,
             Instant waiting_since,
             const PlacementOptions& options) {
  Plan plan = plan_unreserved(device, now, waiting_since, options);
  if (!device.reserved || !plan.takes() || plan.outcome == PlacementOutcome::kServe) {
    return plan;
  }
  Passer passer{.since = waiting_since, .left_pages = device.free_pages - device.need_pages};
  if (options.stays) {
    passer.gone = now + plan.leave + plan.load + *options.stays;
  }
  return may_pass(*device.reserved, passer, now)
             ? plan
             : wait(device, options, PlacementReason::kReserved);
}

namespace {

/// Adds what another device allows to what those before it do.
void join(const Plan& there, Plan& all) {
  if (there.outcome > all.outcome) {
    all.outcome = there.outcome;
    all.reason = there.reason;
  }
  if (there.not_before) {
    all.not_before = std::max(all.not_before.value_or(*there.not_before), *there.not_before);
  }
  for (const ModelId victim : there.victims) {
    if (std::find(all.victims.begin(), all.victims.end(), victim) == all.victims.end()) {
      all.victims.push_back(victim);
    }
  }
  all.leave = std::max(all.leave, there.leave);
  all.load = std::max(all.load, there.load);
  all.lost += there.lost;
  all.short_of_pages = all.short_of_pages || there.short_of_pages;
  all.victims_queue += there.victims_queue;
  all.victims_pages += there.victims_pages;
  all.free_pages = std::min(all.free_pages, there.free_pages);
  all.pressure = std::max(all.pressure, there.pressure);
}

}  // namespace

Plan plan_on_all(std::span<const PlacementDevice> devices,
                 Instant now,
                 Instant waiting_since,
                 const PlacementOptions& options) {
  HEDDLE_CHECK(!devices.empty());
  Plan all = plan_on(devices.front(), now, waiting_since, options);
  for (PlacementDevice device : devices.subspan(1)) {
    for (ResidentView& resident : device.residents) {
      const bool goes =
          std::find(all.victims.begin(), all.victims.end(), resident.model) != all.victims.end();
      resident.displaced = resident.displaced || goes;
      resident.worth = goes ? 0 : resident.worth;  // It is lost once.
    }
    join(plan_on(device, now, waiting_since, options), all);
  }
  return all;
}

Placement placement_of(const PlanChoice& choice) {
  if (!choice.best) {
    return {.outcome = PlacementOutcome::kNever, .reason = PlacementReason::kTooLarge};
  }
  const Plan& best = *choice.best;
  Placement placement{.outcome = best.outcome, .reason = best.reason};
  if (best.takes()) {
    placement.device = best.where;
    placement.victims = best.victims;
  }
  if (best.outcome == PlacementOutcome::kWait) {
    placement.retry_at = choice.retry_at;
  }
  return placement;
}

PlanChoice choose_among(std::span<const PlacementDevice> devices,
                        Instant now,
                        Instant waiting_since,
                        const PlacementOptions& options) {
  PlanPicker picker(plan_options(options));
  for (const PlacementDevice& device : devices) {
    picker.add(plan_on(device, now, waiting_since, options));
  }
  return picker.choose();
}

Placement choose_placement(std::span<const PlacementDevice> devices,
                           Instant now,
                           Instant waiting_since,
                           const PlacementOptions& options) {
  return placement_of(choose_among(devices, now, waiting_since, options));
}

}  // namespace heddle::policy
