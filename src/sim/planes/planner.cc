#include "sim/planes/planner.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "base/check.h"

namespace heddle::sim {
namespace {

double byte_seconds(std::int64_t bytes, Duration stay) {
  return static_cast<double>(bytes) * (to_seconds(stay));
}

Plan start_plan(Mechanism mechanism,
                std::vector<DeviceId> devices,
                Duration ready,
                double lost_value,
                const StartTerms& terms) {
  return {.mechanism = mechanism,
          .ttft = ready + terms.prefill,
          .tpot = terms.tpot,
          .byte_seconds = byte_seconds(terms.bytes, terms.stay),
          .lost_value = lost_value,
          .links_admit = terms.links_admit,
          .devices = std::move(devices)};
}

bool keeps_objectives(const Plan& plan, const PlanTerms& terms) {
  return plan.ttft <= terms.ttft_left && plan.tpot <= terms.tpot;
}

bool possible(const Plan& plan, const PlanTerms& terms) {
  return plan.links_admit && permitted(plan.mechanism, terms.model_class, terms.parts);
}

double harm(const Plan& plan, const PlanTerms& terms) {
  auto wait = static_cast<double>(plan.ttft.count());
  if (plan.tpot > terms.tpot) {
    wait = std::max(wait, static_cast<double>(terms.ttft_left.count())) *
           (static_cast<double>(plan.tpot.count()) / static_cast<double>(terms.tpot.count()));
  }
  return plan.lost_value + static_cast<double>(terms.waiting) * wait / 1e9;
}

}  // namespace

std::string_view name(Mechanism mechanism) {
  switch (mechanism) {
    case Mechanism::kQueue:
      return "queue";
    case Mechanism::kHit:
      return "hit";
    case Mechanism::kAttach:
      return "attach";
    case Mechanism::kActivate:
      return "activate";
    case Mechanism::kInstance:
      return "instance";
    case Mechanism::kPipeline:
      return "pipeline";
    case Mechanism::kSwapIn:
      return "swap_in";
    case Mechanism::kReserve:
      return "reserve";
  }
  return "?";
}

std::string_view reason_name(PlanReason reason) {
  switch (reason) {
    case PlanReason::kCheapest:
      return "cheapest";
    case PlanReason::kLeastHarm:
      return "least_harm";
    case PlanReason::kLate:
      return "late";
  }
  return "?";
}

Plan queue_plan(const RunningInstance& instance) {
  return {.mechanism = Mechanism::kQueue,
          .ttft = instance.ttft,
          .tpot = instance.tpot,
          .devices = instance.devices};
}

std::optional<Plan> launch_plan(const Launch& launch,
                                const LaunchTimes& times,
                                const StartTerms& terms) {
  const double lost = launch.lost.basic + launch.lost.burst;
  StartTerms there = terms;  // The weights are in memory already, or on the way.
  there.bytes = terms.kv_bytes;
  switch (launch.outcome) {
    case LaunchOutcome::kHit:
      return start_plan(Mechanism::kHit, launch.devices, times.hit, lost, there);
    case LaunchOutcome::kAttach:
      return start_plan(Mechanism::kAttach, launch.devices, times.attach, lost, there);
    case LaunchOutcome::kMiss:
      return start_plan(Mechanism::kInstance, launch.devices, times.load, lost, terms);
    case LaunchOutcome::kWait:
      return std::nullopt;
  }
  return std::nullopt;
}

Plan activation_plan(std::vector<DeviceId> devices,
                     Duration ready,
                     double lost_value,
                     const StartTerms& terms) {
  return start_plan(Mechanism::kActivate, std::move(devices), ready, lost_value, terms);
}

Plan pipeline_plan(const policy::StartPlan& start, const StartTerms& terms) {
  std::vector<DeviceId> devices;
  std::int64_t bytes = 0;
  for (const policy::StartStage& stage : start.stages) {
    devices.push_back(stage.device);
    bytes += stage.reserve_bytes;
  }
  Plan plan =
      start_plan(Mechanism::kPipeline, std::move(devices), Duration{}, start.lost_value, terms);
  plan.ttft = start.ttft;  // Its prediction has the prefill in it.
  plan.tpot = start.tpot.value_or(terms.tpot);
  plan.byte_seconds = byte_seconds(bytes, terms.stay);
  return plan;
}

Plan swap_in_plan(std::vector<DeviceId> devices,
                  Duration swap_in,
                  double lost_value,
                  const StartTerms& terms) {
  return start_plan(Mechanism::kSwapIn, std::move(devices), swap_in, lost_value, terms);
}

Plan reservation_plan(std::vector<DeviceId> devices,
                      Duration granted,
                      Duration ready,
                      const StartTerms& terms) {
  return start_plan(Mechanism::kReserve, std::move(devices), granted + ready, 0.0, terms);
}

bool permitted(Mechanism mechanism, ModelClass model_class, std::int64_t parts) {
  const bool external = model_class == ModelClass::kExternal;
  const bool dedicated = runs_dedicated(model_class);
  switch (mechanism) {
    case Mechanism::kQueue:
    case Mechanism::kReserve:
      return true;
    case Mechanism::kSwapIn:
      return external;
    case Mechanism::kHit:
    case Mechanism::kAttach:
      return !external;
    case Mechanism::kPipeline:
      return !external && parts == 1;
    case Mechanism::kInstance:
      return dedicated || (!external && parts > 1);
    case Mechanism::kActivate:
      return !external && !dedicated;
  }
  return false;
}

PlanChoice choose_plan(std::span<const Plan> plans, const PlanTerms& terms) {
  HEDDLE_CHECK(terms.waiting >= 1 && terms.tpot > Duration{});
  double late = std::numeric_limits<double>::infinity();  // Least harm of being late.
  for (const Plan& plan : plans) {
    if (possible(plan, terms) && !keeps_objectives(plan, terms)) {
      late = std::min(late, harm(plan, terms));
    }
  }
  const auto cost = [&](const Plan& plan) {
    return plan.byte_seconds + terms.value_price * plan.lost_value;
  };
  const auto good = [&](const Plan& plan) {
    return keeps_objectives(plan, terms) && harm(plan, terms) <= late;
  };
  const auto rank = [&](const Plan& plan) {
    return std::tuple(
        !good(plan), good(plan) ? cost(plan) : harm(plan, terms), plan.ttft, plan.mechanism);
  };
  PlanChoice choice;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    if (!possible(plan, terms)) {
      continue;
    }
    const Plan* best = choice.plan ? &plans[*choice.plan] : nullptr;
    if (best == nullptr || rank(plan) < rank(*best) ||
        (rank(plan) == rank(*best) && plan.devices < best->devices)) {
      choice = {.reason = good(plan) ? PlanReason::kCheapest : PlanReason::kLeastHarm,
                .plan = i,
                .cost = cost(plan)};
    }
  }
  return choice;
}

}  // namespace heddle::sim
