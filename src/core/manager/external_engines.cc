#include "core/manager/external_engines.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/manager/index.h"
#include "core/manager/models.h"

namespace heddle::core::manager {
namespace {

/// An engine that does not take a request is dead, which is heard of soon, or overrun.
constexpr Duration kEngineRest = std::chrono::milliseconds(250);

/// The request waits again, unless that has happened too often.
void take_from_engine(const Parts& core, RequestId id, const std::string& why) {
  const std::int32_t deaths = core.queues.died(id);
  core.queues.requeue(id);
  if (deaths > kDeathsInCompany) {
    core.queues.fail(
        id,
        {Code::kUnavailable,
         "the request failed " + std::to_string(deaths) + " times, at last because " + why});
  }
}

/// Whether it runs, or stands by: it came there before this manager heard of it, or while its host
/// was cut off.
bool is_found(const EngineSaid& said) {
  return said.news == EngineNews::kServing || said.news == EngineNews::kSuspended;
}

/// Whether it may be where it is.
bool may_be_there(const ModelState& model, const EngineSaid& said) {
  return model.external() && model.footprints.contains(said.device);
}

/// One that was taken out of the configuration while nobody heard of it. Its host knows what it is.
void send_away(const Parts& core, const EngineSaid& said) {
  core.out.act(EvictFrom{.device = said.device,
                         .model = said.model,
                         .mode = EvictMode::kNow,
                         .free_pages = std::numeric_limits<std::int64_t>::max()});
}

/// The requests that were lost there are there again.
void rejoin(const Parts& core, DeviceId device, ModelId model) {
  each(core.state.index.lost, [&](RequestId id) {
    const RequestState& request = core.state.requests.at(id);
    if (request.model == model && request.lost->device == device) {
      core.queues.found(id, device);
    }
  });
}

/// What the manager had planned does not hold: plan again, soon.
void refused(const Parts& core, const Instance& engine, const EngineSaid& said) {
  if (!engine.is<Loading>()) {
    return;
  }
  if (said.held_pages > 0 || !engine.in_flight.empty()) {
    core.residency.suspend(said.device, said.model, said.held_pages);
  } else {
    core.residency.forget(said.device, said.model);
  }
  core.devices.refused(said.device);
}

}  // namespace

void ExternalEngines::hear(const Parts& core, const EngineSaid& said) {
  const auto device = state_.devices.find(said.device);
  const auto model = state_.models.find(said.model);
  if (device == state_.devices.end()) {
    return;
  }
  if (model == state_.models.end()) {
    if (is_found(said)) {
      send_away(core, said);
    }
    return;
  }
  model->second.swap_out = said.swap_out;
  model->second.swap_in = said.swap_in;
  auto found = device->second.instances.find(said.model);
  if (found == device->second.instances.end() && is_found(said) &&
      may_be_there(model->second, said)) {
    core.residency.adopt(
        said.device, {.model = said.model, .residency = core::Residency::kServing}, {});
    found = device->second.instances.find(said.model);
  }
  if (found != device->second.instances.end()) {
    switch (said.news) {
      case EngineNews::kServing:
        serves(core, found->second, said);
        break;
      case EngineNews::kSuspended:
      case EngineNews::kEnded:
        left(core, found->second, said);
        break;
      case EngineNews::kRefused:
        refused(core, found->second, said);
        break;
      case EngineNews::kFailed:
      case EngineNews::kLost:
        lost(core, found->second, said);
        break;
    }
  }
  if (said.news == EngineNews::kFailed) {
    core.attempts.failed(said.model, said.reason);
  }
}

/// Of one that the manager took to be out, it says nothing new: what comes of that is on its way.
void ExternalEngines::hear(const Parts& core, const EngineKv& said) {
  const auto device = state_.devices.find(said.device);
  if (device == state_.devices.end()) {
    return;
  }
  const auto found = device->second.instances.find(said.model);
  if (found != device->second.instances.end() && found->second.runs() &&
      state_.models.at(said.model).external()) {
    core.kv_limits.heard(said);
    core.residency.hold_pages(said.device, said.model, said.firm_pages);
  }
}

void ExternalEngines::serves(const Parts& core, const Instance& engine, const EngineSaid& said) {
  ModelState& model = state_.models.at(said.model);
  model.learned_pages = said.held_pages;
  core.residency.hold_pages(said.device, said.model, said.held_pages);
  if (engine.is<Loading>()) {
    core.demand.learn_load(said.device, said.model);
    core.devices.accepted(said.device);
    core.attempts.succeeded(said.model);
  } else if (engine.is<Evicting>()) {
    // It could not be suspended as was asked; whatever wanted its place looks again.
    for (const ShardPlace& place : block(core.state, said.model, said.device)) {
      core.plans.cancel(place.device);
    }
    core.devices.pause(said.device, state_.now + kEngineRest);
  }
  const std::optional<DrainPlan>& plan = state_.devices.at(said.device).plan;
  if (plan && plan->model == said.model && plan->lacks == 0) {
    core.plans.cancel(said.device);  // It is there without that.
  }
  if (!engine.is<Draining>()) {  // Else it was known to serve, and whoever drains it goes on.
    core.residency.serve(said.device, said.model);
  }
  rejoin(core, said.device, said.model);
  count_frozen(said.model);
}

void ExternalEngines::left(const Parts& core, const Instance& engine, const EngineSaid& said) {
  if (engine.is<Evicting>()) {
    core.residency.count_eviction(said.device, said.model);
  }
  if (said.news == EngineNews::kEnded) {
    core.residency.lose(said.device, said.model);
  } else {
    core.residency.suspend(said.device, said.model, said.held_pages);
    core.kv_limits.forget(said.device, said.model);
    rejoin(core, said.device, said.model);
  }
  count_frozen(said.model);
}

/// Its requests wait again, those whose engine died under them once more often.
void ExternalEngines::lost(const Parts& core, const Instance& engine, const EngineSaid& said) {
  for (const RequestId id : std::set<RequestId>(engine.in_flight)) {
    take_from_engine(core, id, "the engine ended: " + said.reason.message);
  }
  core.residency.forget(said.device, said.model);
  count_frozen(said.model);
}

void ExternalEngines::hear(const Parts& core, const RequestUnanswered& unanswered) {
  const auto found = state_.requests.find(unanswered.request);
  if (found == state_.requests.end() || (!found->second.device && !found->second.lost)) {
    return;  // Its engine was heard to have died meanwhile.
  }
  const RequestState& request = found->second;
  if (request.device) {
    core.queues.rest(*request.device, request.model, state_.now + kEngineRest);
  }
  if (request.lost || unanswered.cut) {
    core.queues.requeue(unanswered.request);
  } else {
    take_from_engine(core, unanswered.request, "the engine did not take it");
  }
}

void ExternalEngines::count_frozen(ModelId id) {
  ModelState& model = state_.models.at(id);
  model.frozen = 0;
  for (const Spot& spot : model.spots) {
    model.frozen += spot.instance->is<Suspended>() ? spot.instance->in_flight.size() : 0;
  }
  reindex(state_, id);
}

void ExternalEngines::count_frozen() {
  for (const auto& [id, model] : state_.models) {
    if (model.external()) {
      count_frozen(id);
    }
  }
}

void ExternalEngines::hear(const Parts& core, const HostLost& lost) {
  for (const auto& [id, device] : core.state.devices) {
    std::vector<ModelId> engines;
    for (const auto& [model, instance] : device.instances) {
      if (host_of(id) == lost.host && state_.models.at(model).external()) {
        engines.push_back(model);
      }
    }
    for (const ModelId model : engines) {
      for (const RequestId request : std::set<RequestId>(device.instances.at(model).in_flight)) {
        core.queues.lose(request, {.device = id, .epoch = device.epoch, .cut = true});
      }
      core.residency.lose(id, model);
      count_frozen(model);
    }
  }
}

}  // namespace heddle::core::manager
