#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "core/manager_core_impl.h"
#include "policy/backoff.h"

namespace heddle::core {
namespace {

/// Errors that trying again does not cure.
bool permanent(Code code) {
  return code == Code::kInvalidArgument || code == Code::kNotFound || code == Code::kCorrupt;
}

}  // namespace

void ManagerCore::Impl::on(const WorkerUp& up) {
  DeviceState& device = devices_.at(up.device);
  HEDDLE_CHECK(!device.up && up.epoch > device.epoch);
  device.restarts += device.epoch == WorkerEpoch{} ? 0 : 1;
  device.up = true;
  device.epoch = up.epoch;
  device.version = 0;
  device.refusals = 0;
  device.paused_until = now_;
  unfinished_ = true;  // There is room for what is expected to be needed.
}

void ManagerCore::Impl::on(const WorkerDown& down) {
  DeviceState& device = devices_.at(down.device);
  if (!device.up || device.epoch != down.epoch) {
    return;  // It never came up.
  }
  device.up = false;
  device.usage = {};
  device.short_sequences = device.short_pages = 0;
  cancel_plan(device);
  if (device.claimed) {
    cancel_claim(*device.claimed);
  }
  std::map<ModelId, Instance> lost;
  for (const auto& [model, instance] : std::map<ModelId, Instance>(device.instances)) {
    if (!models_.at(model).foreign()) {  // Engines that are not ours outlive the worker.
      lost.insert(device.instances.extract(model));
    }
  }
  for (auto& [model, instance] : lost) {
    for (const RequestId id : instance.in_flight) {
      const bool was_alone = device.alone == id;
      enqueue(id);
      blame(id, down, was_alone);
    }
    if (instance.stage == InstanceStage::kLoading &&
        (!down.killed || ++models_.at(whole(model)).kills % kKillsPerFailure == 0)) {
      load_failed(model, {Code::kUnavailable, "the worker died while it loaded the model"});
    }
  }
  device.alone.reset();
}

/// A death counts against a request, as it may have been for it. Not that of a worker which was
/// killed after the request had come further there: what kills by itself does so at one place. And
/// in company such deaths have it run alone, but do not fail it.
void ManagerCore::Impl::blame(RequestId id, const WorkerDown& down, bool was_alone) {
  RequestState& request = requests_.at(id);
  if (down.killed && std::ranges::binary_search(down.advanced, id)) {
    request.deaths = 0;
    return;
  }
  if (!down.killed || was_alone || request.deaths < kDeathsInCompany) {
    ++request.deaths;
  }
  if (was_alone || request.deaths > kDeathsInCompany) {
    fail(id,
         {Code::kUnavailable,
          "the worker died " + std::to_string(request.deaths) +
              " times while it ran this request, the last time running nothing else"});
  }
}

void ManagerCore::Impl::on(const WorkerSaid& said) {
  const auto found = devices_.find(said.device);
  if (found != devices_.end() && found->second.up && found->second.epoch == said.epoch) {
    std::visit([&, this](const auto& report) { heard(said.device, report); }, said.report);
  }
}

void ManagerCore::Impl::heard(DeviceId device_id, const ModelServing& serving) {
  DeviceState& device = devices_.at(device_id);
  const auto found = device.instances.find(serving.model);
  if (found == device.instances.end() || found->second.stage != InstanceStage::kLoading) {
    return;  // Its eviction is on the way.
  }
  const bool apart = found->second.apart;
  if (models_.at(serving.model).grouped() && !apart) {
    return;  // It serves when all shards are complete.
  }
  found->second.stage = apart ? InstanceStage::kMember : InstanceStage::kServing;
  found->second.serving_since = now_;
  device.refusals = 0;
  ModelState& model = models_.at(serving.model);
  model.failures = model.kills = 0;
  model.failure.reset();
}

/// What the manager had planned no longer holds: plan again, with the worker's newest numbers.
void ManagerCore::Impl::heard(DeviceId device_id, const LoadRefused& refused) {
  DeviceState& device = devices_.at(device_id);
  device.version = refused.version;
  const auto found = device.instances.find(refused.model);
  const auto model = models_.find(refused.model);
  if (model != models_.end() && model->second.foreign()) {
    return;  // It was asked to lend pages; EngineSaid tells what comes of that.
  }
  if (found == device.instances.end() || found->second.stage != InstanceStage::kLoading) {
    return;  // An eviction followed it; that will be answered, too.
  }
  device.instances.erase(found);
  ++device.refusals;
  device.paused_until =
      now_ + policy::backoff(device.refusals, options_.load_retry_first, options_.load_cooldown);
}

void ManagerCore::Impl::heard(DeviceId device_id, const LoadFailed& failed) {
  DeviceState& device = devices_.at(device_id);
  device.version = failed.version;
  const auto found = device.instances.find(failed.model);
  if (found != device.instances.end() && found->second.stage != InstanceStage::kEvicting) {
    evict(device, failed.model, EvictMode::kNow, EvictionReason::kFailed);
  } else if (found != device.instances.end() && models_.at(failed.model).grouped()) {
    return;  // Another shard has failed before: that is one failure of the model.
  }
  load_failed(failed.model, failed.reason);
}

void ManagerCore::Impl::heard(DeviceId device_id, const EvictRefused& refused) {
  DeviceState& device = devices_.at(device_id);
  device.version = refused.version;
  const auto found = device.instances.find(refused.model);
  if (found != device.instances.end() && found->second.stage == InstanceStage::kEvicting) {
    // If it is there at all, the next report says.
    found->second.stage = found->second.apart ? InstanceStage::kMember : InstanceStage::kServing;
  }
}

void ManagerCore::Impl::heard(DeviceId device_id, const ModelEvicted& evicted) {
  DeviceState& device = devices_.at(device_id);
  const auto found = device.instances.find(evicted.model);
  if (found != device.instances.end()) {
    ++models_.at(evicted.model).evictions[static_cast<std::size_t>(found->second.evicted_for)];
    lose_instance(device_id, evicted.model);
    unfinished_ = true;  // There is room for what is expected to be needed.
  }
}

/// The instance is gone; requests that were on it wait again.
void ManagerCore::Impl::lose_instance(DeviceId device_id, ModelId model) {
  DeviceState& device = devices_.at(device_id);
  const auto found = device.instances.find(model);
  if (found == device.instances.end()) {
    return;
  }
  for (const RequestId id : std::set<RequestId>(found->second.in_flight)) {
    leave(id);
    enqueue(id);
  }
  note_gone(model, found->second);
  device.instances.erase(model);
}

std::optional<DeviceId> ManagerCore::Impl::in_flight_at(RequestId id, DeviceId device) const {
  const auto found = requests_.find(id);
  return found != requests_.end() && found->second.device == device ? found->second.device
                                                                    : std::nullopt;
}

void ManagerCore::Impl::heard(DeviceId device_id, const RequestReturned& returned) {
  if (!in_flight_at(returned.request, device_id)) {
    return;
  }
  // Unless it was recalled, the model goes, though the manager may not have heard why: send it
  // nothing more until then.
  Instance& instance = devices_.at(device_id).instances.at(requests_.at(returned.request).model);
  if (returned.recalled) {
    ++models_.at(requests_.at(returned.request).model).recalled;
  } else if (instance.stage == InstanceStage::kServing) {
    instance.stage = InstanceStage::kDraining;
  }
  leave(returned.request);
  enqueue(returned.request);
}

void ManagerCore::Impl::heard(DeviceId device_id, const RequestFailed& failed) {
  if (in_flight_at(failed.request, device_id)) {
    end(failed.request);
    act(FailRequest{.request = failed.request, .error = failed.error});
  }
}

void ManagerCore::Impl::heard(DeviceId device_id, const DeviceReport& report) {
  DeviceState& device = devices_.at(device_id);
  device.version = report.version;
  device.usage = report.usage;
  count_shortage(device);
  device.short_sequences = report.short_sequences;
  device.short_pages = report.short_pages;
  device.short_model = report.short_model;
  std::map<ModelId, ResidentReport> reported;
  for (const ResidentReport& resident : report.models) {
    reported[resident.model] = resident;
  }
  std::vector<ModelId> gone;
  for (auto& [id, instance] : device.instances) {
    const auto found = reported.find(id);
    if (models_.at(id).foreign()) {
      continue;
    }
    if (found == reported.end()) {
      if (instance.stage == InstanceStage::kServing || instance.stage == InstanceStage::kDraining ||
          instance.stage == InstanceStage::kMember) {
        gone.push_back(id);
      }
      continue;
    }
    instance.kv_pages = found->second.kv_pages;
    if (found->second.complete && !instance.complete && models_.at(id).grouped()) {
      instance.complete = true;
      note_shard_complete(device, id);
    } else if (found->second.complete && !instance.complete) {
      note_complete(device, id, instance);
    }
    const bool planned = is_to_leave(device, id);
    const bool resident = found->second.residency == Residency::kWarm ||
                          found->second.residency == Residency::kServing;
    if (instance.stage == InstanceStage::kDraining && resident && !planned) {
      instance.stage = InstanceStage::kServing;
    }
  }
  for (const ModelId id : gone) {
    lose_instance(device_id, id);
  }
  if (report.pages_wanted > 0) {
    find_pages(device, report);
  } else if (device.plan && device.plan->lacks > 0) {
    cancel_plan(device);  // They came free meanwhile.
  }
}

/// The oldest sequence of the device lacks pages that only other models have. Nothing runs there
/// until it gets them, so draining models of ours would be in vain: they give way at once, and
/// their requests wait again. Engines that answer requests are waited for, if it takes them. If
/// nobody can give way, the worker does without.
void ManagerCore::Impl::find_pages(DeviceState& device, const DeviceReport& report) {
  const bool moving =
      std::any_of(device.instances.begin(), device.instances.end(), [](const auto& entry) {
        return entry.second.stage == InstanceStage::kLoading ||
               entry.second.stage == InstanceStage::kEvicting;
      });
  const auto wanting = device.instances.find(report.wanted_by);
  if (moving || wanting == device.instances.end() || (device.plan && device.plan->lacks > 0)) {
    return;  // That changes the device; the worker will say what it lacks then.
  }
  std::vector<policy::ResidentView> others = view(device, report.wanted_by).residents;
  std::erase_if(others, [&](const auto& resident) {
    const Instance& instance = device.instances.at(resident.model);
    return resident.model == report.wanted_by ||
           (instance.stage == InstanceStage::kSuspended && !instance.in_flight.empty());
  });
  for (policy::ResidentView& other : others) {
    other.in_transition = false;
  }
  std::vector<policy::ResidentView> at_once = others;
  std::erase_if(at_once, [&](const auto& resident) {
    return models_.at(resident.model).foreign() &&
           !device.instances.at(resident.model).in_flight.empty();
  });
  auto victims = policy::choose_victims(at_once, 0, report.pages_wanted);
  if (!victims) {
    victims = policy::choose_victims(others, 0, report.pages_wanted);
  }
  if (victims) {
    cancel_plan(device);
    device.plan = DrainPlan{.model = report.wanted_by,
                            .victims = std::move(*victims),
                            .began = now_,
                            .lacks = report.pages_wanted};
    free_lacking(device);
    return;
  }
  act(TellWorker{.device = device.config.id, .epoch = device.epoch, .message = NoPages{}});
}

/// Has those give way who hold what a plan lacks, once the engines among them are idle: they are
/// sent nothing more.
void ManagerCore::Impl::free_lacking(DeviceState& device) {
  const auto wanting = device.instances.find(device.plan->model);
  bool stale = wanting == device.instances.end() || wanting->second.in_flight.empty();
  bool ready = true;
  for (const ModelId victim : device.plan->victims) {
    const auto found = device.instances.find(victim);
    stale =
        stale || found == device.instances.end() || found->second.stage == InstanceStage::kEvicting;
    if (!stale && models_.at(victim).foreign()) {
      Instance& engine = found->second;
      ready = ready && engine.in_flight.empty();
      if (engine.stage == InstanceStage::kServing && !engine.in_flight.empty()) {
        begin_drain(engine, victim, device.config.id, device.plan->model);
      }
    }
  }
  if (stale) {
    cancel_plan(device);  // What has changed will have the worker say what it lacks now.
    return;
  }
  if (!ready) {
    return;
  }
  const DrainPlan due = *std::exchange(device.plan, std::nullopt);
  for (const ModelId victim : due.victims) {
    evict(device, victim, EvictMode::kNow, EvictionReason::kOutgrown, due.model, due.lacks);
  }
}

void ManagerCore::Impl::on(const ImageFailed& failed) {
  const auto found = devices_.find(failed.device);
  if (found == devices_.end() || !found->second.up || found->second.epoch != failed.epoch) {
    return;
  }
  const auto instance = found->second.instances.find(failed.model);
  const bool evicting = instance != found->second.instances.end() &&
                        instance->second.stage == InstanceStage::kEvicting;
  if (!evicting) {
    lose_instance(failed.device, failed.model);  // Else that is answered, too.
  } else if (models_.at(failed.model).grouped()) {
    return;  // Another shard has failed before.
  }
  load_failed(failed.model, failed.reason);
}

/// Tries again after a pause, or lets whoever waits for the model know that it is in vain.
void ManagerCore::Impl::load_failed(ModelId id, const Error& reason) {
  const auto found = models_.find(models_.contains(id) ? whole(id) : id);
  if (found == models_.end()) {
    return;
  }
  ModelState& model = found->second;
  model.failure = reason;
  ++model.failures;
  if (model.failures < options_.load_attempts && !permanent(reason.code)) {
    model.retry_at =
        now_ + policy::backoff(model.failures, options_.load_retry_first, options_.load_cooldown);
    return;
  }
  const std::string attempts =
      model.failures == 1 ? "" : " after " + std::to_string(model.failures) + " attempts";
  model.failures = 0;
  model.failed_until = model.retry_at = now_ + options_.load_cooldown;
  fail_waiting(
      found->first,
      {Code::kUnavailable,
       "model '" + model.config.name + "' could not be loaded" + attempts + ": " + reason.message});
}

void ManagerCore::Impl::on(const ImageState& state) {
  const auto found = models_.find(state.model);
  if (found != models_.end()) {
    found->second.image_ready_bytes = state.bytes;
    found->second.host_cached = state.host_cached;
  }
}

}  // namespace heddle::core
