#include "policy/plans.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"

namespace heddle::policy {
namespace {

/// Parts of a load that are worth losing for a better place.
constexpr double kLostLoad = 0.1;

/// What can begin now; for what busy models have to go; what waits; what can never be.
int stage_of(PlacementOutcome outcome) {
  switch (outcome) {
    case PlacementOutcome::kServe:
    case PlacementOutcome::kLoad:
      return 0;
    case PlacementOutcome::kDrain:
      return 1;
    case PlacementOutcome::kWait:
      return 2;
    case PlacementOutcome::kNever:
      return 3;
  }
  return 3;
}

auto rank_after(const Plan& plan) {
  return std::tuple(plan.pressure, plan.victims_pages, -plan.free_pages, plan.kind, plan.where);
}

}  // namespace

std::string_view name(PlanKind kind) {
  switch (kind) {
    case PlanKind::kQueue:
      return "queue";
    case PlanKind::kHit:
      return "hit";
    case PlanKind::kAttach:
      return "attach";
    case PlanKind::kActivate:
      return "activate";
    case PlanKind::kGroup:
      return "group";
    case PlanKind::kStages:
      return "stages";
    case PlanKind::kWeave:
      return "weave";
    case PlanKind::kSwapIn:
      return "swap_in";
  }
  return "?";
}

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
    case PlacementReason::kReserved:
      return "reserved";
    case PlacementReason::kTransition:
      return "transition";
    case PlacementReason::kPinned:
      return "pinned";
    case PlacementReason::kTooLarge:
      return "too_large";
  }
  return "?";
}

bool in_time(const Plan& plan, const PlanOptions& options) {
  const bool steps = !plan.tpot || !options.tpot || *plan.tpot <= *options.tpot;
  return steps && plan.ttft() <= options.ttft_left;
}

double price(const Plan& plan, const PlanOptions& options) {
  const double later = to_seconds(plan.load + plan.first - options.soonest);
  return plan.lost + later + (in_time(plan, options) ? plan.cost : 0);
}

std::string_view why_not(const Plan& plan, const Plan& best, const PlanOptions& options) {
  if (!plan.no_candidate.empty()) {
    return plan.no_candidate;
  }
  if (stage_of(plan.outcome) > stage_of(best.outcome)) {
    switch (plan.outcome) {
      case PlacementOutcome::kDrain:
        return "busy models would have to go";
      case PlacementOutcome::kWait:
        return plan.not_before ? "not yet" : "not now";
      default:
        return "cannot be";
    }
  }
  if (plan.short_of_pages && !best.short_of_pages) {
    return "requests wait there for memory";
  }
  if (in_time(best, options) && !in_time(plan, options)) {
    return "would be late";
  }
  if (plan.load + plan.first > best.load + best.first) {
    return "comes later";
  }
  if (plan.lost > best.lost) {
    return "loses more";
  }
  return plan.cost > best.cost ? "keeps more devices busy" : "no better";
}

PlanPicker::PlanPicker(const PlanOptions& options, PressureOf pressure_of)
    : options_(options), pressure_of_(std::move(pressure_of)) {}

PlanPicker::Rank PlanPicker::rank(const Plan& plan) const {
  const int stage = stage_of(plan.outcome);
  const bool weighs = plan.takes() && options_.load > Duration{};
  double cost = to_seconds(plan.load + plan.first - options_.soonest);
  if (weighs) {
    // Busy models come back with their requests in any case: it counts when they will have left.
    const double all = stage == 0 ? price(plan, options_) : cost + to_seconds(plan.leave);
    cost = std::floor(all / (kLostLoad * to_seconds(options_.load)));
  }
  const bool idle_as_free = weighs && plan.reason == PlacementReason::kIdleVictims;
  return {stage,
          plan.short_of_pages,
          plan.takes() && !in_time(plan, options_),
          cost,
          idle_as_free ? PlacementReason::kFreePages : plan.reason,
          plan.victims_queue};
}

double PlanPicker::told_pressure(const Plan& plan) const {
  return pressure_of_ ? pressure_of_(plan) : plan.pressure;
}

bool PlanPicker::before(const Plan& one, const Plan& other) const {
  const Rank first = rank(one);
  const Rank second = rank(other);
  return first != second ? first < second : rank_after(one) < rank_after(other);
}

void PlanPicker::add(Plan plan) {
  if (plan.not_before && (!retry_at_ || *plan.not_before < *retry_at_)) {
    retry_at_ = plan.not_before;
  }
  const Rank its = rank(plan);
  const bool even = best_ && its == best_rank_ && plan.takes();
  if (even) {
    best_->pressure = best_told_ ? best_->pressure : told_pressure(*best_);
    plan.pressure = told_pressure(plan);
  }
  const bool better =
      !best_ || its < best_rank_ || (its == best_rank_ && rank_after(plan) < rank_after(*best_));
  if (!better) {
    best_told_ = best_told_ || even;
    pass_over(std::move(plan));
    return;
  }
  if (best_) {
    pass_over(std::move(*best_));
  }
  best_ = std::move(plan);
  best_rank_ = its;
  best_told_ = even;
}

/// It is not the best: it may be that of its kind and reason, for which no pressure is asked.
void PlanPicker::pass_over(Plan plan) {
  plan.pressure = 0;
  const auto like = std::find_if(others_.begin(), others_.end(), [&](const Plan& other) {
    return other.kind == plan.kind && other.reason == plan.reason;
  });
  if (like == others_.end()) {
    others_.push_back(std::move(plan));
  } else if (before(plan, *like)) {
    *like = std::move(plan);
  }
}

PlanChoice PlanPicker::choose() {
  if (best_) {
    std::erase_if(others_, [this](const Plan& other) {
      return other.kind == best_->kind && other.reason == best_->reason;
    });
  }
  std::sort(others_.begin(), others_.end(), [this](const Plan& one, const Plan& other) {
    return before(one, other);
  });
  others_.resize(std::min(others_.size(), kPlansTold));
  return {.best = std::move(best_), .others = std::move(others_), .retry_at = retry_at_};
}

PlanChoice choose_plan(std::span<const Plan> plans, const PlanOptions& options) {
  PlanPicker picker(options);
  for (const Plan& plan : plans) {
    picker.add(plan);
  }
  return picker.choose();
}

}  // namespace heddle::policy
