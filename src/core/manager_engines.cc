#include <algorithm>
#include <set>
#include <string>

#include "base/check.h"
#include "core/manager_core_impl.h"
#include "policy/backoff.h"
#include "policy/preemption.h"

namespace heddle::core {
namespace {

/// A busy engine stays for at least so many times what bringing it in takes.
constexpr std::int64_t kResidenceSwaps = policy::PreemptionOptions{}.residence_swaps;
/// An engine that does not take a request is dead, which is heard of soon, or overrun.
constexpr Duration kEngineRest = std::chrono::milliseconds(250);

}  // namespace

/// What it may hold of its device while it runs.
std::int64_t ManagerCore::Impl::engine_pages(const ModelState& model) const {
  std::int64_t pages = 0;
  for (const auto& [device, footprint] : model.config.footprints) {
    pages = std::max(pages, footprint.image_pages);
  }
  return pages > 0 ? pages : std::max<std::int64_t>(model.learned_pages, 1);
}

/// An engine as a victim for `wanted`. One that stands by can only give up what it still holds, and
/// only by being ended, which its requests would not survive.
policy::ResidentView ManagerCore::Impl::engine_view(const DeviceState& device,
                                                    ModelId id,
                                                    const ModelState& wanted) const {
  const ModelState& model = models_.at(id);
  const Instance& instance = device.instances.at(id);
  const bool stands_by = instance.stage == InstanceStage::kSuspended;
  const bool busy = !instance.in_flight.empty();
  return {.model = id,
          .pages = pages_of(device, id),
          .queue = std::ssize(instance.in_flight) + std::ssize(model.waiting),
          .last_used = model.last_used,
          .serving_since = instance.serving_since,
          .min_residence = residence(model, instance),
          .pinned = model.config.pin && !model.removed,
          .displaced = !stands_by && displaces(wanted, id),
          .swap = std::max<Duration>(model.swap_out + model.swap_in, Duration(1)),
          .in_transition = stands_by ? busy : instance.stage != InstanceStage::kServing};
}

/// How long an engine stays at least. One that is idle has answered those who waited for it; if
/// nobody asked it since it came it need not stay at all, so that who uses engines by turns waits
/// for a switch and no longer. If somebody did, the next may come soon: it stays until it was idle
/// for half of what bringing it back takes.
Duration ManagerCore::Impl::residence(const ModelState& model, const Instance& instance) {
  const Duration most = std::max(model.config.min_residence, kResidenceSwaps * model.swap_in);
  if (!instance.in_flight.empty()) {
    return most;
  }
  if (model.last_arrival <= instance.serving_since) {
    return {};
  }
  return std::min(most, model.last_used - instance.serving_since + model.swap_in / 2);
}

Instant ManagerCore::Impl::frozen_since(ModelId model) const {
  Instant since = Instant::max();
  for (const auto& [id, device] : devices_) {
    const auto found = device.instances.find(model);
    if (found == device.instances.end() || found->second.stage != InstanceStage::kSuspended) {
      continue;
    }
    for (const RequestId request : found->second.in_flight) {
      since = std::min(since, requests_.at(request).arrived);
    }
  }
  return since;
}

/// Whether an engine can be suspended for the plan now: idle, or its requests have had their time
/// and stand still with it.
bool ManagerCore::Impl::may_leave(const DrainPlan& plan, ModelId victim, const Instance& instance) {
  const std::optional<Duration> drain = models_.at(victim).config.foreign->drain;
  if (instance.in_flight.empty() || !drain) {
    return instance.in_flight.empty();
  }
  wake_by(plan.began + *drain);
  return now_ >= plan.began + *drain;
}

/// Suspends the engines among the victims that can leave. True when none is left that runs.
bool ManagerCore::Impl::suspend_victims(DeviceState& device, const DrainPlan& plan) {
  // One that is cut has its devices to itself.
  const std::int64_t need =
      models_.at(plan.model).grouped() ? device.config.pages : view(device, plan.model).need_pages;
  bool left = true;
  for (const ModelId victim : plan.victims) {
    const auto found = device.instances.find(victim);
    if (found == device.instances.end() || !models_.at(victim).foreign()) {
      continue;
    }
    const Instance& instance = found->second;
    const std::int64_t short_by = need - free_pages(device, workspace_of(device, plan.model));
    const bool stands_by = instance.stage == InstanceStage::kSuspended;
    if (stands_by && (short_by <= 0 || instance.kv_pages == 0)) {
      continue;  // It has left.
    }
    left = false;
    const bool leaves = instance.stage == InstanceStage::kDraining || stands_by;
    if (leaves && may_leave(plan, victim, instance)) {
      const bool busy = !instance.in_flight.empty();
      const bool for_room = short_by > 0 || !displaces(models_.at(plan.model), victim);
      evict(device,
            victim,
            busy ? EvictMode::kFrozen : EvictMode::kWhenIdle,
            EvictionReason::kDisplaced,
            plan.model,
            for_room ? std::clamp<std::int64_t>(short_by, 1, pages_of(device, victim)) : 0);
    }
  }
  return left;
}

void ManagerCore::Impl::on(const EngineSaid& said) {
  const auto found = devices_.find(said.device);
  const auto model = models_.find(said.model);
  if (found == devices_.end() || model == models_.end()) {
    return;
  }
  model->second.swap_out = said.swap_out;
  model->second.swap_in = said.swap_in;
  switch (said.news) {
    case EngineNews::kServing:
      engine_serves(found->second, said);
      break;
    case EngineNews::kSuspended:
    case EngineNews::kEnded:
      engine_left(found->second, said);
      break;
    case EngineNews::kRefused:
      engine_refused(found->second, said);
      break;
    case EngineNews::kFailed:
    case EngineNews::kLost:
      engine_lost(found->second, said);
      break;
  }
}

void ManagerCore::Impl::engine_serves(DeviceState& device, const EngineSaid& said) {
  const auto found = device.instances.find(said.model);
  if (found == device.instances.end()) {
    return;
  }
  ModelState& model = models_.at(said.model);
  Instance& instance = found->second;
  instance.kv_pages = said.held_pages;
  model.learned_pages = said.held_pages;
  if (instance.stage == InstanceStage::kLoading) {
    instance.serving_since = now_;
    device.refusals = 0;
    model.failures = 0;
    model.failure.reset();
  } else if (instance.stage == InstanceStage::kEvicting) {
    // It could not be suspended as was asked; whoever wanted its place looks again.
    cancel_plan(device);
    device.paused_until = now_ + kEngineRest;
  }
  instance.stage = InstanceStage::kServing;
  model.frozen = 0;
}

void ManagerCore::Impl::engine_left(DeviceState& device, const EngineSaid& said) {
  const auto found = device.instances.find(said.model);
  if (found == device.instances.end()) {
    return;
  }
  ModelState& model = models_.at(said.model);
  Instance& instance = found->second;
  if (instance.stage == InstanceStage::kEvicting) {
    ++model.evictions[static_cast<std::size_t>(instance.evicted_for)];
  }
  if (said.news == EngineNews::kEnded) {
    model.frozen = 0;
    lose_instance(device.config.id, said.model);
    return;
  }
  instance.stage = InstanceStage::kSuspended;
  instance.kv_pages = said.held_pages;
  model.frozen = instance.in_flight.size();
}

/// What the manager had planned does not hold: plan again, soon.
void ManagerCore::Impl::engine_refused(DeviceState& device, const EngineSaid& said) {
  const auto found = device.instances.find(said.model);
  if (found == device.instances.end() || found->second.stage != InstanceStage::kLoading) {
    return;
  }
  Instance& instance = found->second;
  if (said.held_pages > 0 || !instance.in_flight.empty()) {
    instance.stage = InstanceStage::kSuspended;
    instance.kv_pages = said.held_pages;
  } else {
    device.instances.erase(found);
  }
  ++device.refusals;
  device.paused_until =
      now_ + policy::backoff(device.refusals, options_.load_retry_first, options_.load_cooldown);
}

/// Its requests wait again, those whose engine died under them once more often.
void ManagerCore::Impl::engine_lost(DeviceState& device, const EngineSaid& said) {
  const auto found = device.instances.find(said.model);
  if (found != device.instances.end()) {
    for (const RequestId id : std::set<RequestId>(found->second.in_flight)) {
      take_from_engine(id, "the engine ended: " + said.reason.message);
    }
    models_.at(said.model).frozen = 0;
    device.instances.erase(said.model);
  }
  if (said.news == EngineNews::kFailed) {
    load_failed(said.model, said.reason);
  }
}

void ManagerCore::Impl::on(const RequestUnanswered& unanswered) {
  const auto found = requests_.find(unanswered.request);
  if (found == requests_.end() || !found->second.device) {
    return;  // Its engine was heard to have died meanwhile.
  }
  Instance& instance = devices_.at(*found->second.device).instances.at(found->second.model);
  instance.resting_until = now_ + kEngineRest;
  take_from_engine(unanswered.request, "the engine did not take it");
}

/// The request waits again, unless that has happened too often.
void ManagerCore::Impl::take_from_engine(RequestId id, const std::string& why) {
  leave(id);
  RequestState& request = requests_.at(id);
  ++request.deaths;
  enqueue(id);
  if (request.deaths > kDeathsInCompany) {
    fail(id,
         {Code::kUnavailable,
          "the request failed " + std::to_string(request.deaths) + " times, at last because " +
              why});
  }
}

/// How long devices ran requests, and how long none ran because models came and went.
void ManagerCore::Impl::account(Instant until) {
  const Duration passed = until - now_;
  for (auto& [id, device] : devices_) {
    bool serving = false;
    bool switching = device.plan.has_value();
    for (const auto& [model, instance] : device.instances) {
      const bool runs =
          instance.stage == InstanceStage::kServing || instance.stage == InstanceStage::kDraining;
      const bool member = instance.stage == InstanceStage::kMember;
      const Instance* leader = member ? leading(device, model) : &instance;
      serving = serving || ((runs || member) && leader != nullptr && !leader->in_flight.empty());
      switching = switching || (!runs && !member && instance.stage != InstanceStage::kSuspended);
    }
    if (serving) {
      device.serving += passed;
    } else if (switching) {
      device.switching += passed;
    }
  }
}

}  // namespace heddle::core
