#include "core/manager/worker_events.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/manager/groups.h"
#include "core/manager/models.h"
#include "core/manager/worker_lives.h"

namespace heddle::core::manager {
namespace {

/// The instance, or null when it is not on the device.
const Instance* instance_at(const State& state, DeviceId device, ModelId model) {
  const auto& instances = state.devices.at(device).instances;
  const auto found = instances.find(model);
  return found == instances.end() ? nullptr : &found->second;
}

// ---- What workers report ----

void heard(const Parts& core, DeviceId device, const ModelServing& serving) {
  const Instance* instance = instance_at(core.state, device, serving.model);
  if (instance == nullptr || !instance->is<Loading>()) {
    return;  // Its eviction is on the way.
  }
  if (core.state.models.at(serving.model).grouped() && !instance->staged()) {
    return;  // It serves when all shards are complete.
  }
  core.residency.serve(device, serving.model);
  core.devices.accepted(device);
  core.attempts.succeeded(serving.model);
}

/// What the manager had planned does not hold: plan again, with the worker's newest numbers.
void heard(const Parts& core, DeviceId device, const LoadRefused& refused) {
  core.devices.version(device, refused.version);
  const Instance* instance = instance_at(core.state, device, refused.model);
  const auto model = core.state.models.find(refused.model);
  if (model != core.state.models.end() && model->second.external()) {
    return;  // It was asked to lend pages; EngineSaid tells what comes of that.
  }
  if (instance != nullptr && instance->is<Loading>()) {  // Else an eviction followed it.
    core.residency.forget(device, refused.model);
    core.devices.refused(device);
  }
}

void heard(const Parts& core, DeviceId device, const LoadFailed& failed) {
  core.devices.version(device, failed.version);
  const Instance* instance = instance_at(core.state, device, failed.model);
  if (instance != nullptr && !instance->is<Evicting>()) {
    core.residency.evict(device, failed.model, EvictMode::kNow, EvictionReason::kFailed);
  } else if (instance != nullptr && core.state.models.at(failed.model).grouped()) {
    return;  // Another shard has failed before: that is one failure of the model.
  }
  core.attempts.failed(failed.model, failed.reason);
}

void heard(const Parts& core, DeviceId device, const EvictRefused& refused) {
  core.devices.version(device, refused.version);
  const Instance* instance = instance_at(core.state, device, refused.model);
  if (instance != nullptr && instance->is<Evicting>()) {
    core.residency.eviction_refused(device, refused.model);
  }
}

void heard(const Parts& core, DeviceId device, const ModelEvicted& evicted) {
  if (instance_at(core.state, device, evicted.model) != nullptr) {
    core.residency.count_eviction(device, evicted.model);
    core.residency.lose(device, evicted.model);
    core.loads.look_again();  // There is room for what is expected to be needed.
  }
}

/// Where one of its shards has gone, the others follow. Where a manager before this one asked for
/// it, requests may be on their way there: what is left goes, with them.
void heard(const Parts& core, DeviceId device, const SteppedBack& stepped) {
  const Instance* leader = instance_at(core.state, device, stepped.model);
  if (leader == nullptr || !in_group(core.state, stepped.model, *leader)) {
    return;
  }
  if (leader->is<SteppingBack>() && gathered(core.state, stepped.model, device).whole()) {
    core.residency.stand_by(stepped.model, device);
  } else if (leader->runs()) {
    core.residency.evict_here(device, stepped.model, EvictMode::kNow, EvictionReason::kFailed);
  }
}

/// Unless it was recalled, the model goes, though the manager may not have heard why: it is sent
/// nothing more until then.
void heard(const Parts& core, DeviceId device, const RequestReturned& returned) {
  const RequestState& request = core.state.requests.at(returned.request);
  if (returned.recalled && request.device) {
    core.queues.recalled(returned.request);
    return;
  }
  if (request.device && instance_at(core.state, device, request.as)->is<Serving>()) {
    core.residency.drain(device, request.as);
  }
  core.queues.requeue(returned.request);
}

void heard(const Parts& core, DeviceId device, const KvMoved& moved) {
  core.queues.moved(device, moved);
}

void heard(const Parts& core, DeviceId /*device*/, const RequestFailed& failed) {
  core.queues.fail(failed.request, failed.error);
}

/// Of one model of ours, what its worker reports; false when it is not there any more.
bool observe(const Parts& core, const DeviceState& device, ModelId id, const ResidentReport* seen) {
  const Instance& instance = device.instances.at(id);
  if (seen == nullptr) {
    return !instance.runs() && !instance.is<Member>();
  }
  const DeviceId device_id = device.config.id;
  if (core.residency.observe(device_id, *seen)) {
    core.demand.learn_load(device_id, id);
  }
  const bool resident =
      seen->residency == core::Residency::kWarm || seen->residency == core::Residency::kServing;
  if (instance.is<Draining>() && resident && !is_to_leave(core.state, device, id)) {
    core.residency.resume(device_id, id);
  }
  return true;
}

/// What a device lacks it may have lent: that comes back first, and the worker says again what it
/// lacks when it is there. False where nothing is lent.
bool recall_guests(const Parts& core, const DeviceState& device, const DeviceReport& report) {
  core.guests.recall_any(device.config.id,
                         report.pages_wanted,
                         "the device's oldest request lacks memory",
                         report.wanted_by);
  return std::any_of(device.guests.begin(), device.guests.end(), [](const auto& entry) {
    return entry.second.recalled > 0;
  });
}

void heard(const Parts& core, DeviceId device_id, const DeviceReport& report) {
  const DeviceState& device = core.state.devices.at(device_id);
  core.devices.version(device_id, report.version);
  core.devices.usage(device_id, report.usage);
  core.devices.step(device_id, report.step);
  core.shortages.heard(device_id, report);
  std::map<ModelId, const ResidentReport*> reported;
  for (const ResidentReport& resident : report.models) {
    reported[resident.model] = &resident;
  }
  for (const ResidentReport& resident : report.models) {
    if (device.found && !device.instances.contains(resident.model)) {
      adopt(core, device_id, resident);
    }
  }
  std::vector<ModelId> gone;
  for (const auto& [id, instance] : device.instances) {
    const auto found = reported.find(id);
    if (!core.state.models.at(id).external() &&
        !observe(core, device, id, found == reported.end() ? nullptr : found->second)) {
      gone.push_back(id);
    }
  }
  for (const ModelId id : gone) {
    core.residency.lose(device_id, id);
  }
  if (report.pages_wanted == 0) {
    core.plans.have_pages(device_id);
  } else if (!recall_guests(core, device, report)) {
    core.plans.want_pages(device_id, report);
  }
}

/// What else workers say concerns others.
template <class T>
void heard(const Parts& /*core*/, DeviceId /*device*/, const T& /*report*/) {}

/// Of a request, its front passes on what a worker says: also one that is cut off from here.
template <class Report>
void hear_of_request(const Parts& core, const WorkerSaid& said, const Report& report) {
  const auto found = core.state.requests.find(report.request);
  if (found == core.state.requests.end()) {
    return;
  }
  const std::optional<LostPlace>& lost = found->second.lost;
  if ((found->second.device == said.device && alive(core.state, said.device, said.epoch)) ||
      (lost && lost->device == said.device && lost->epoch == said.epoch)) {
    heard(core, said.device, report);
  }
}

}  // namespace

void hear(const Parts& core, const WorkerSaid& said) {
  if (const auto* returned = std::get_if<RequestReturned>(&said.report)) {
    hear_of_request(core, said, *returned);
  } else if (const auto* failed = std::get_if<RequestFailed>(&said.report)) {
    hear_of_request(core, said, *failed);
  } else if (alive(core.state, said.device, said.epoch)) {
    std::visit([&](const auto& report) { heard(core, said.device, report); }, said.report);
  }
}

void hear(const Parts& core, const ImageFailed& failed) {
  if (!alive(core.state, failed.device, failed.epoch)) {
    return;
  }
  const Instance* instance = instance_at(core.state, failed.device, failed.model);
  const bool evicting = instance != nullptr && instance->is<Evicting>();
  if (evicting && core.state.models.at(failed.model).grouped()) {
    return;  // Another shard has failed before.
  }
  if (instance != nullptr && !evicting) {
    core.residency.lose(failed.device, failed.model);  // Else that is answered, too.
  }
  core.fetches.end(host_of(failed.device), failed.model);
  core.attempts.failed(failed.model, failed.reason);
}

namespace {

/// It ran before this manager was, if all its shards were found. If not, it ends: what is left of
/// it waits for a shard that may have died, or is with a host that is away.
void adopt_group(const Parts& core, const GroupFormed& formed) {
  const ManagerModel& model = core.state.models.at(formed.model).config;
  const bool alive_all = std::ranges::all_of(formed.members, [&](const GroupMember& member) {
    return alive(core.state, member.device, member.epoch);
  });
  if (alive_all && model.groups.contains(formed.device) &&
      gathered(core.state, formed.model, formed.device).whole()) {
    for (const ShardPlace& place : block(core.state, formed.model, formed.device)) {
      core.residency.join(place.device, place.model, formed.device);
    }
    core.residency.formed(formed.model, formed.device);
  } else {
    core.residency.evict_here(
        formed.device, formed.model, EvictMode::kNow, EvictionReason::kFailed);
  }
}

}  // namespace

void hear(const Parts& core, const GroupFormed& formed) {
  if (!alive(core.state, formed.device, formed.epoch)) {
    return;
  }
  const Instance* leader = instance_at(core.state, formed.device, formed.model);
  if (leader != nullptr && leader->staged() && !core.state.settled) {
    adopt_group(core, formed);
    return;
  }
  if (leader == nullptr || !leader->is<Loading>() || !leader->part().forming) {
    return;  // It has been sent away meanwhile.
  }
  core.residency.formed(formed.model, formed.device);
  for (const ShardPlace& place : block(core.state, formed.model, formed.device)) {
    core.devices.accepted(place.device);
  }
  core.attempts.succeeded(formed.model);
}

}  // namespace heddle::core::manager
