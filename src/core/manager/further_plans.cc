#include "core/manager/further_plans.h"

#include <algorithm>

#include "base/units.h"
#include "core/manager/guest_hosts.h"
#include "core/manager/images.h"
#include "core/manager/models.h"
#include "core/manager/replicas.h"
#include "core/manager/value.h"
#include "policy/spread.h"

namespace heddle::core::manager {
namespace {

using policy::PlacementOutcome;
using policy::PlacementReason;
using policy::Plan;
using policy::PlanKind;

/// What the host has yet to fetch of the model, by how fast it does; 0: nothing, or nobody counts.
Duration still_to_fetch(const State& state, ModelId id, HostId host) {
  const auto network = state.networks.find(host);
  if (network == state.networks.end()) {
    return {};
  }
  const std::vector<policy::Fetch>& fetches = network->second.fetches();
  const auto fetch = std::ranges::find(fetches, policy::FetchId(id.value()), &policy::Fetch::id);
  return fetch == fetches.end()
             ? Duration{}
             : from_seconds(static_cast<double>(fetch->bytes) *
                            static_cast<double>(fetches.size()) /
                            static_cast<double>(network->second.bytes_per_second()));
}

/// Requests of the model that wait at the instance: as many as will be late, as it has more than it
/// should bear, or as lack memory.
std::int64_t waiting_at(const ModelState& model, const Spot& spot) {
  const Shortage& shortage = spot.device->shortage;
  const std::int64_t all = std::ssize(spot.instance->in_flight);
  const std::int64_t lack = shortage.model == model.config.id ? shortage.sequences : 0;
  return std::clamp<std::int64_t>(
      std::max({spot.instance->late, all - model.config.batch, lack}), 0, all);
}

Plan queue_plan(const State& state, const ModelState& model, const Spot& spot) {
  return {.kind = spot.instance->in_flight.empty() ? PlanKind::kHit : PlanKind::kQueue,
          .outcome = PlacementOutcome::kServe,
          .reason = PlacementReason::kServing,
          .where = spot.id,
          .first = queue_time(state, spot, model.config.id) + prompt_time(model),
          .short_of_pages = spot.device->shortage.sequences > 0};
}

Plan loading_plan(const State& state, const ModelState& model, const Spot& spot) {
  return {.kind = PlanKind::kAttach,
          .outcome = PlacementOutcome::kServe,
          .reason = PlacementReason::kServing,
          .where = spot.id,
          .load = still_to_load(state, spot, model.config.id),
          .first = prompt_time(model)};
}

/// It keeps its device and link busy beyond what the model has already.
Plan one_more_plan(const State& state, const ModelState& model, const ReplicaPlace& place) {
  const Duration load =
      model.sharded() ? place.load_takes : load_time(state, model, state.devices.at(place.device));
  return {
      .kind = model.sharded() ? PlanKind::kGroup : PlanKind::kActivate,
      .outcome = PlacementOutcome::kLoad,
      .reason = place.victims.empty() ? PlacementReason::kFreePages : PlacementReason::kIdleVictims,
      .where = place.device,
      .victims = place.victims,
      .load = load,
      .first = prompt_time(model),
      .cost = to_seconds(load),
      .lost = place.lost};
}

/// Memory is there at once; the neighbour's own requests are slower meanwhile.
Plan weave_plan(const ModelState& model, const GuestOffer& offer) {
  return {.kind = PlanKind::kWeave,
          .outcome = PlacementOutcome::kServe,
          .reason = PlacementReason::kServing,
          .where = offer.host,
          .first = prompt_time(model)};
}

bool leads(const Spot& spot) {
  return spot.device->up && !spot.instance->part().leader;
}

policy::PlanOptions options_for(const State& state, ModelId id, const std::vector<Plan>& plans) {
  const std::optional<Instant> due = first_due(state, id);
  policy::PlanOptions options{.ttft_left = due ? *due - state.now : Duration::max(),
                              .soonest = Duration::max()};
  for (const Plan& plan : plans) {
    options.soonest = std::min(options.soonest, plan.load + plan.first);
    options.load = std::max(options.load, plan.load);
  }
  return options;
}

/// Why it is not taken where another is.
std::string_view why_passed_over(const Plan& plan,
                                 const Plan& taken,
                                 const policy::PlanOptions& options) {
  if (plan.kind == PlanKind::kQueue && plan.ttft() < taken.ttft()) {
    return "others wait there for as long as one more takes";
  }
  return policy::why_not(plan, taken, options);
}

}  // namespace

Duration still_to_load(const State& state, const Spot& spot, ModelId id) {
  const Instance& instance = *spot.instance;
  if (instance.complete) {
    return {};
  }
  const ModelState& model = state.models.at(id);
  const HostId host = host_of(spot.id);
  const Duration measured = model.load_times.at(instance.from_host ? 1 : 0);
  const bool fetches = to_fetch(model, host) > 0;
  const bool counted = fetches && state.networks.contains(host);
  const Duration takes =
      counted ? from_seconds(static_cast<double>(model.config.image_bytes) / kLoadRate)
      : measured > Duration{} && !fetches ? measured
                                          : load_time(state, model, *spot.device);
  return std::max(
      {takes - (state.now - instance.load_began), still_to_fetch(state, id, host), Duration{}});
}

Duration queue_time(const State& state, const Spot& spot, ModelId id) {
  const ModelState& model = state.models.at(id);
  const std::int64_t waiting = waiting_at(model, spot);
  const std::int64_t runs =
      std::max<std::int64_t>(1, std::ssize(spot.instance->in_flight) - waiting);
  return from_seconds(model.demand.mean_service() * static_cast<double>(waiting) /
                      static_cast<double>(runs));
}

std::optional<Plan> attach_plan(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  std::optional<Plan> first;
  for (const Spot& spot : model.spots) {
    if (spot.instance->is<Serving>()) {
      return std::nullopt;
    }
    if (!spot.instance->is<Loading>() || spot.instance->staged() || !leads(spot)) {
      continue;
    }
    const Plan plan = loading_plan(state, model, spot);
    if (!first || plan.ttft() < first->ttft()) {
      first = plan;
    }
  }
  return first;
}

std::vector<Plan> plans_beside(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  std::vector<Plan> plans;
  for (const Spot& spot : model.spots) {
    if (!leads(spot)) {
      continue;
    }
    if (spot.instance->is<Serving>() && !spot.instance->spare) {
      plans.push_back(queue_plan(state, model, spot));
    } else if (spot.instance->is<Loading>() && !spot.instance->staged()) {
      plans.push_back(loading_plan(state, model, spot));
    }
  }
  if (const auto place = place_for_one_more(state, id)) {
    plans.push_back(one_more_plan(state, model, *place));
  }
  for (const Spot& spot : model.spots) {
    if (state.options.planner.weave && spot.instance->is<Serving>() && calm(state, *spot.device)) {
      if (const auto offer = guest_offer(state, *spot.device, id)) {
        plans.push_back(weave_plan(model, *offer));
      }
    }
  }
  return plans;
}

std::optional<ReplicaPlace> sooner_elsewhere(const State& state, ModelId id) {
  const ModelState& model = state.models.at(id);
  const std::optional<Plan> attach = attach_plan(state, id);
  if (!attach || model.external() || model.grouped() ||
      policy::in_time(*attach, options_for(state, id, {*attach}))) {
    return std::nullopt;
  }
  auto place = place_for_replica(state, id);
  if (!place) {
    return std::nullopt;
  }
  const Plan more = one_more_plan(state, model, *place);
  return policy::pays_beside(attach->ttft(), more.ttft(), more.load, more.lost) ? std::move(place)
                                                                                : std::nullopt;
}

std::string describe_beside(const State& state,
                            ModelId id,
                            PlanKind taken,
                            std::optional<DeviceId> where) {
  const std::vector<Plan> plans = plans_beside(state, id);
  const auto best = std::ranges::find_if(plans, [&](const Plan& plan) {
    return plan.kind == taken && (!where || plan.where == *where);
  });
  const policy::PlanOptions options = options_for(state, id, plans);
  std::string text;
  for (const Plan& plan : plans) {
    if (best == plans.end() || plan == *best) {
      continue;
    }
    text += (text.empty() ? "; instead of " : ", ") + std::string(policy::name(plan.kind)) +
            " on " + state.devices.at(plan.where).config.name + " (" +
            format_duration(plan.ttft()) + ": " +
            std::string(why_passed_over(plan, *best, options)) + ")";
  }
  return text;
}

}  // namespace heddle::core::manager
