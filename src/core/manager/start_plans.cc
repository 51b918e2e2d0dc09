#include "core/manager/start_plans.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "base/units.h"
#include "core/manager/images.h"
#include "core/manager/models.h"
#include "core/manager/value.h"
#include "core/manager/views.h"

namespace heddle::core::manager {
namespace {

using policy::PlacementOutcome;
using policy::Plan;
using policy::PlanKind;

/// An engine on several devices at once, whose views follow each other.
policy::PlanChoice choose_on_several(const State& state,
                                     ModelId id,
                                     Instant since,
                                     const StartChoice& choice) {
  policy::PlanPicker picker(policy::plan_options(choice.compared));
  const std::span<const policy::PlacementDevice> views = choice.views;
  for (std::size_t first = 0; first < views.size();) {
    const std::size_t devices = block(state, id, views[first].id).size();
    picker.add(
        policy::plan_on_all(views.subspan(first, devices), state.now, since, choice.compared));
    first += devices;
  }
  return picker.choose();
}

/// An external engine, or a sharded model.
StartChoice choose_other(const State& state, ModelId id, Instant since) {
  Places places = places_for(state, id, longest_waiting(state, state.models.at(id)));
  StartChoice choice{.compared = placing(state, id, places.load_takes, places.soonest),
                     .fits_elsewhere = places.fits_elsewhere,
                     .views = std::move(places.views)};
  choice.plans = on_several(state.models.at(id))
                     ? choose_on_several(state, id, since, choice)
                     : policy::choose_among(choice.views, state.now, since, choice.compared);
  choice.placement = policy::placement_of(choice.plans);
  return choice;
}

/// The stages as one plan among others. In time they cost what they keep further devices and links
/// busy: each loads its part, and then one of them the rest.
Plan plan_of(const CutStart& start, const policy::PlacementOptions& compared) {
  const auto stages = static_cast<double>(start.places.size());
  const double one = to_seconds(start.ttft - std::min(compared.first, start.ttft));
  return {.kind = PlanKind::kStages,
          .outcome = PlacementOutcome::kLoad,
          .reason = policy::PlacementReason::kFreePages,
          .where = start.places.front().stage.device,
          .load = start.ttft,
          .tpot = start.tpot,
          .cost = std::max(0.0, stages * one - to_seconds(compared.soonest) / stages),
          .lost = start.lost};
}

Plan no_plan(PlanKind kind, std::string_view why_not, DeviceId where = {}) {
  return {
      .kind = kind, .outcome = PlacementOutcome::kNever, .where = where, .no_candidate = why_not};
}

/// A whole model of ours.
StartChoice choose_whole(const State& state, PlaceSearch& search, ModelId id, Instant since) {
  const ModelState& model = state.models.at(id);
  PlaceChoice there = search.choose(id, longest_waiting(state, model), since);
  StartChoice choice{.compared = there.compared,
                     .placement = std::move(there.placement),
                     .fits_elsewhere = there.fits_elsewhere,
                     .paused_until = there.paused_until};
  policy::PlanPicker picker(policy::plan_options(choice.compared));
  if (there.plan) {
    there.plan->pressure = 0;  // Of stages none is known.
    picker.add(std::move(*there.plan));
  }
  CutChoice cuts = look_at_cuts(state, id);
  if (cuts.start) {
    picker.add(plan_of(*cuts.start, choice.compared));
  }
  choice.plans = picker.choose();
  std::vector<Plan>& others = choice.plans.others;
  if (!cuts.start && !cuts.why_not.empty()) {
    others.push_back(no_plan(PlanKind::kStages, cuts.why_not));
    others.back().load = cuts.ttft.value_or(Duration{});
  }
  for (const Spot& spot : model.spots) {
    others.push_back(no_plan(PlanKind::kQueue, "it is to leave", spot.id));
  }
  std::ranges::move(there.others, std::back_inserter(others));
  others.resize(std::min(others.size(), policy::kPlansTold));
  if (choice.plans.best && choice.plans.best->kind == PlanKind::kStages) {
    choice.stages = std::move(cuts.start);
  }
  return choice;
}

/// "free_pages on d1", "queue on d0", "stages".
std::string describe(const State& state, const Plan& plan) {
  if (plan.kind == PlanKind::kStages) {
    return "stages";
  }
  const bool loads = plan.kind == PlanKind::kActivate || plan.kind == PlanKind::kGroup ||
                     plan.kind == PlanKind::kSwapIn;
  return std::string(loads ? policy::reason_name(plan.reason) : policy::name(plan.kind)) + " on " +
         state.devices.at(plan.where).config.name;
}

}  // namespace

StartChoice choose_start(const State& state, PlaceSearch& search, ModelId id, Instant since) {
  const ModelState& model = state.models.at(id);
  return model.external() || model.sharded() ? choose_other(state, id, since)
                                             : choose_whole(state, search, id, since);
}

bool load_known(const ModelState& model, const DeviceState& device) {
  if (model.external()) {
    return model.swap_in > Duration{} ||
           std::ranges::any_of(model.load_times, [](Duration time) { return time > Duration{}; });
  }
  const HostId host = host_of(device.config.id);
  const bool cached = model.cached_at(host);
  return model.load_times.at(cached ? 1 : 0) > Duration{} || (cached && device.load_rate > 0) ||
         to_fetch(model, host) > 0;
}

std::string describe_others(const State& state, ModelId id, const StartChoice& choice) {
  if (state.models.at(id).waiting.empty() || !choice.plans.best) {
    return {};
  }
  const policy::PlanOptions options = policy::plan_options(choice.compared);
  std::string text;
  for (const Plan& other : choice.plans.others) {
    const bool timed =
        other.kind == PlanKind::kStages || other.kind == PlanKind::kGroup
            ? other.load > Duration{}
            : other.takes() && load_known(state.models.at(id), state.devices.at(other.where));
    text += (text.empty() ? "; instead of " : ", ") + describe(state, other) + " (" +
            (timed ? format_duration(other.ttft()) + ": " : "") +
            std::string(policy::why_not(other, *choice.plans.best, options)) + ")";
  }
  return text;
}

}  // namespace heddle::core::manager
