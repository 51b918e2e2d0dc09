#include "core/manager/worker_lives.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/manager/groups.h"
#include "core/manager/index.h"
#include "core/manager/models.h"

namespace heddle::core::manager {
namespace {

/// A death counts against a request, as it may have been for it. Not that of a host, nor that of a
/// worker which was killed after the request had come further there: what kills by itself does so
/// at one place. And in company such deaths have it run alone, but do not fail it.
void blame(const Parts& core, RequestId id, const LostPlace& place, bool advanced) {
  if (place.cut) {
    return;
  }
  if (place.killed && advanced) {
    core.queues.absolve(id);
    return;
  }
  std::int32_t deaths = core.state.requests.at(id).deaths;
  if (!place.killed || place.alone || deaths < kDeathsInCompany) {
    deaths = core.queues.died(id);
  }
  if (place.alone || deaths > kDeathsInCompany) {
    core.queues.fail(id,
                     {Code::kUnavailable,
                      "the worker died " + std::to_string(deaths) +
                          " times while it ran this request, the last time running nothing else"});
  }
}

}  // namespace

bool alive(const State& state, DeviceId device, WorkerEpoch epoch) {
  const auto found = state.devices.find(device);
  return found != state.devices.end() && found->second.up && found->second.epoch == epoch;
}

namespace {

/// Whether it can be the device's worker now. One that was thought to live has died unheard.
bool may_come_up(const Parts& core, DeviceId device, WorkerEpoch epoch) {
  const auto found = core.state.devices.find(device);
  if (found == core.state.devices.end() || epoch < found->second.epoch ||
      alive(core.state, device, epoch)) {
    return false;
  }
  if (found->second.up) {
    hear(core, WorkerDown{.device = device, .epoch = found->second.epoch, .killed = true});
  }
  return true;
}

/// The part that the shard has in its group, as far as that is configured; any other model is
/// whole.
GroupPart part_of(const State& state, DeviceId device, const ModelState& model) {
  if (!model.grouped()) {
    return {};
  }
  return {
      .leader = model.config.part_of ? leader_for(state, device, model.config.id) : std::nullopt,
      .staged = true};
}

/// The worker is gone, and what it had: models of ours, loads and plans of its device.
void take_down(const Parts& core, DeviceId device_id, LostPlace place) {
  const DeviceState& device = core.state.devices.at(device_id);
  core.devices.down(device_id);
  core.shortages.clear(device_id);
  core.plans.cancel(device_id);
  if (device.claimed) {
    core.claims.cancel(*device.claimed);
  }
  std::vector<ModelId> lost;
  for (const auto& [model, instance] : device.instances) {
    if (!core.state.models.at(model).external()) {
      lost.push_back(model);
    }
  }
  for (const ModelId model : lost) {
    const Instance instance = device.instances.at(model);
    for (const RequestId id : instance.in_flight) {
      place.alone = device.alone == id;
      core.queues.lose(id, place);
    }
    core.residency.forget(device_id, model);
    if (instance.is<Loading>() && !place.cut && (!place.killed || core.attempts.killed(model))) {
      core.attempts.failed(model,
                           {Code::kUnavailable, "the worker died while it loaded the model"});
    }
  }
  core.queues.release(device_id);
}

}  // namespace

void adopt(const Parts& core, DeviceId device, const ResidentReport& resident) {
  const auto model = core.state.models.find(resident.model);
  if (model != core.state.models.end() && !model->second.external() &&
      model->second.footprints.contains(device)) {
    core.residency.adopt(device, resident, part_of(core.state, device, model->second));
  }
}

namespace {

/// A model that cannot be there by now, as the manager that was to take it off is gone: its memory
/// would be nobody's to give.
void send_away(const Parts& core, const WorkerFound& found, ModelId model) {
  if (!core.state.devices.at(found.device).instances.contains(model)) {
    core.out.act(EvictFrom{.device = found.device,
                           .model = model,
                           .basis = {.epoch = found.epoch, .version = found.report.version},
                           .mode = EvictMode::kNow});
  }
}

}  // namespace

/// Of the whole and a cut of it, the cut, which is to go in any case: what comes back of a request
/// says that the model goes, and the whole may stay.
std::optional<ModelId> runs_as(const State& state, DeviceId device, ModelId model) {
  const auto& instances = state.devices.at(device).instances;
  std::vector<ModelId> all = forms(state.models.at(model));
  std::ranges::rotate(all, all.begin() + 1);
  for (const ModelId form : all) {
    const auto found = instances.find(form);
    if (found != instances.end() && (found->second.runs() || found->second.is<Evicting>())) {
      return form;
    }
  }
  return std::nullopt;
}

void hear(const Parts& core, const WorkerUp& up) {
  if (may_come_up(core, up.device, up.epoch)) {
    core.devices.up(up);
    core.loads.look_again();  // There is room for what is expected to be needed.
  }
}

void hear(const Parts& core, const WorkerFound& found) {
  if (!may_come_up(core, found.device, found.epoch)) {
    return;
  }
  core.devices.up({.device = found.device, .epoch = found.epoch}, true);
  for (const ResidentReport& resident : found.report.models) {
    adopt(core, found.device, resident);
    send_away(core, found, resident.model);
  }
  core.devices.version(found.device, found.report.version);
  if (found.report.usage.total > 0) {  // Else it has said nothing yet: all is free.
    core.devices.usage(found.device, found.report.usage);
  }
  each(core.state.index.lost, [&](RequestId id) {
    const RequestState& request = core.state.requests.at(id);
    const bool here = request.lost->device == found.device && request.lost->epoch == found.epoch;
    if (const auto as = here ? runs_as(core.state, found.device, request.model) : std::nullopt) {
      core.queues.found(id, found.device, as);
    }
  });
  core.loads.look_again();
}

/// External engines outlive the worker of their device.
void hear(const Parts& core, const WorkerDown& down) {
  if (alive(core.state, down.device, down.epoch)) {  // Else it never came up.
    take_down(
        core, down.device, {.device = down.device, .epoch = down.epoch, .killed = down.killed});
  }
}

void hear(const Parts& core, const HostLost& lost) {
  for (const auto& [id, device] : core.state.devices) {
    if (host_of(id) != lost.host) {
      continue;
    }
    if (device.up) {
      take_down(core, id, {.device = id, .epoch = device.epoch, .cut = true});
    }
    core.guests.forget(id);
    core.devices.leaves(id, false);  // It says so again when it is back.
  }
}

/// A host that stays after all takes requests again with what it has left.
void hear(const Parts& core, const HostLeaving& heard) {
  for (const auto& [id, device] : core.state.devices) {
    if (host_of(id) != heard.host || device.leaving == heard.leaving) {
      continue;
    }
    core.devices.leaves(id, heard.leaving);
    for (const auto& [model, instance] : device.instances) {
      if (!heard.leaving) {
        core.residency.resume(id, model);
      }
    }
  }
  core.loads.look_again();
}

/// A front may know of it before the manager does, or be the only one who is cut off from there:
/// then it has the worker give the requests up, too.
void hear(const Parts& core, const PlaceLost& lost) {
  for (const RequestId id : lost.requests) {
    const auto found = core.state.requests.find(id);
    if (found == core.state.requests.end()) {
      continue;  // It ended here meanwhile, which the front is about to hear.
    }
    const std::optional<LostPlace> place = found->second.lost;
    if (place && place->device == lost.device && place->epoch == lost.epoch) {
      core.queues.requeue(id);
      blame(core, id, *place, std::ranges::binary_search(lost.advanced, id));
    } else if (found->second.device == lost.device && alive(core.state, lost.device, lost.epoch)) {
      core.queues.requeue(id);
    }
  }
}

}  // namespace heddle::core::manager
