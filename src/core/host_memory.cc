#include "core/host_memory.h"

#include <algorithm>
#include <optional>
#include <variant>

namespace heddle::core {

namespace {

void put(DeviceReport& report, ModelId model, std::optional<Residency> residency) {
  const auto at = std::ranges::lower_bound(report.models, model, {}, &ResidentReport::model);
  const bool there = at != report.models.end() && at->model == model;
  ResidentReport& resident = there ? *at : *report.models.insert(at, {.model = model});
  resident.residency = residency.value_or(resident.residency);
}

}  // namespace

void HostMemory::hear(const ManagerEvent& event) {
  std::visit([this](const auto& said) { note(said); }, event);
}

void HostMemory::note(const WorkerUp& up) {
  workers_[up.device] = {.epoch = up.epoch};
}

void HostMemory::note(const WorkerDown& down) {
  if (lives(down.device, down.epoch)) {
    workers_.erase(down.device);
    std::erase_if(groups_, [&](const auto& group) { return group.first.first == down.device; });
  }
}

void HostMemory::note(const WorkerSaid& said) {
  if (!lives(said.device, said.epoch)) {
    return;
  }
  Worker& worker = workers_.at(said.device);
  // Commands are decided upon a version, which refusals and failures raise.
  const auto raise = [&](std::uint64_t version) {
    worker.report.version = std::max(worker.report.version, version);
  };
  if (const auto* report = std::get_if<DeviceReport>(&said.report)) {
    worker.report = *report;
  } else if (const auto* serving = std::get_if<ModelServing>(&said.report)) {
    put(worker.report, serving->model, Residency::kServing);
  } else if (const auto* evicted = std::get_if<ModelEvicted>(&said.report)) {
    forget(said.device, worker, evicted->model);
  } else if (const auto* stepped = std::get_if<SteppedBack>(&said.report)) {
    groups_.erase({said.device, stepped->model});
  } else if (const auto* refused = std::get_if<LoadRefused>(&said.report)) {
    raise(refused->version);
  } else if (const auto* failed = std::get_if<LoadFailed>(&said.report)) {
    worker.failed[failed->model] = *failed;
    raise(failed->version);
  } else if (const auto* stays = std::get_if<EvictRefused>(&said.report)) {
    raise(stays->version);
  }
}

void HostMemory::forget(DeviceId device, Worker& worker, ModelId model) {
  worker.failed.erase(model);
  groups_.erase({device, model});
  std::erase_if(worker.report.models, [&](const auto& one) { return one.model == model; });
}

/// Nothing of the model is left there.
void HostMemory::note(const ImageFailed& failed) {
  if (lives(failed.device, failed.epoch)) {
    forget(failed.device, workers_.at(failed.device), failed.model);
  }
}

void HostMemory::note(const ImageState& image) {
  if (image.bytes == 0 && !image.host_cached) {
    images_.erase(image.model);
  } else {
    images_[image.model] = image;
  }
}

void HostMemory::note(const GroupFormed& formed) {
  if (lives(formed.device, formed.epoch)) {
    groups_[{formed.device, formed.model}] = formed;
  }
}

void HostMemory::note(const GuestState& guests) {
  if (guests.pages == 0) {
    guests_.erase({guests.device, guests.model});
  } else {
    GuestState& kept = guests_[{guests.device, guests.model}] = guests;
    kept.refused = false;  // Who asked has heard that.
  }
}

void HostMemory::note(const EngineSaid& said) {
  switch (said.news) {
    case EngineNews::kServing:
      engines_[said.model] = said;
      break;
    case EngineNews::kSuspended:
      engines_[said.model] = said;
      engine_kv_.erase(said.model);
      break;
    case EngineNews::kRefused:
      break;  // It is what it was.
    case EngineNews::kFailed:
    case EngineNews::kEnded:
    case EngineNews::kLost:
      engines_.erase(said.model);
      engine_kv_.erase(said.model);
      break;
  }
}

void HostMemory::note(const HostLeaving& leaving) {
  leaving_ = leaving.leaving ? std::optional(leaving) : std::nullopt;
}

std::vector<ManagerEvent> HostMemory::all(const ModelsByDevice& there) const {
  std::vector<ManagerEvent> all;
  for (const auto& [device, worker] : workers_) {
    DeviceReport report = worker.report;
    if (const auto found = there.find(device); found != there.end()) {
      for (const ModelId model : found->second) {
        put(report, model, std::nullopt);
      }
    }
    all.emplace_back(WorkerFound{.device = device, .epoch = worker.epoch, .report = report});
    const auto say = [&, at = device, epoch = worker.epoch](const WorkerReport& report) {
      all.emplace_back(WorkerSaid{.device = at, .epoch = epoch, .report = report});
    };
    if (report.usage.total > 0) {  // Else it has said nothing yet.
      say(report);                 // Also for what it wants.
    }
    for (const auto& [model, failed] : worker.failed) {
      say(failed);
    }
  }
  for (const auto& [model, image] : images_) {
    all.emplace_back(image);
  }
  for (const auto& [place, formed] : groups_) {
    all.emplace_back(formed);
  }
  for (const auto& [place, guests] : guests_) {
    all.emplace_back(guests);
  }
  for (const auto& [model, said] : engines_) {
    all.emplace_back(said);
  }
  for (const auto& [model, said] : engine_kv_) {
    all.emplace_back(said);
  }
  if (leaving_) {
    all.emplace_back(*leaving_);
  }
  return all;
}

std::map<DeviceId, WorkerEpoch> HostMemory::lives() const {
  std::map<DeviceId, WorkerEpoch> all;
  for (const auto& [device, worker] : workers_) {
    all[device] = worker.epoch;
  }
  return all;
}

bool HostMemory::lives(DeviceId device, WorkerEpoch epoch) const {
  const auto found = workers_.find(device);
  return found != workers_.end() && found->second.epoch == epoch;
}

}  // namespace heddle::core
