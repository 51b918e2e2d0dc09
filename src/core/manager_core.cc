#include "core/manager_core.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "core/manager_core_impl.h"

namespace heddle::core {
namespace {

DemandStatus demand_status(const ModelState& model) {
  const policy::Forecast& expected = model.demand.expected();
  return {.expected_mean = expected.load.mean,
          .expected_peak = expected.load.peak,
          .error = std::isfinite(expected.error) ? std::optional(expected.error) : std::nullopt,
          .starts = model.starts,
          .wasted_bytes = model.wasted_bytes};
}

/// An engine that stands by is absent, whatever it holds.
Residency residency_of(const Instance& instance) {
  switch (instance.stage) {
    case InstanceStage::kLoading:
      return Residency::kLoading;
    case InstanceStage::kServing:
      return instance.in_flight.empty() ? Residency::kWarm : Residency::kServing;
    case InstanceStage::kSuspended:
      return Residency::kAbsent;
    case InstanceStage::kMember:
      return !instance.apart     ? Residency::kDraining
             : instance.complete ? Residency::kWarm
                                 : Residency::kLoading;
    case InstanceStage::kDraining:
    case InstanceStage::kEvicting:
      break;
  }
  return Residency::kDraining;
}

}  // namespace

void ManagerCore::Impl::step(Instant now,
                             const ManagerEvent& event,
                             std::vector<ManagerCommand>& commands) {
  HEDDLE_CHECK(now >= now_);
  account(now);
  now_ = now;
  commands_ = &commands;
  std::visit([this](const auto& concrete) { on(concrete); }, event);
  schedule();
  commands_ = nullptr;
}

std::vector<ModelStatus> ManagerCore::Impl::models() const {
  std::vector<ModelStatus> statuses;
  for (const auto& [id, model] : models_) {
    if (model.config.part_of) {
      continue;  // Its rank 0 stands for the whole.
    }
    ModelStatus status{.id = id,
                       .name = model.config.name,
                       .host_cached = model.host_cached,
                       .image_bytes = model.config.image_bytes,
                       .loaded_bytes = model.image_ready_bytes,
                       .requests_waiting = std::ssize(model.waiting),
                       .foreign = model.foreign(),
                       .loads = model.loads,
                       .evictions = model.evictions,
                       .recalled = model.recalled,
                       .objectives = model.objectives(),
                       .demand = demand_status(model),
                       .last_used = model.last_used,
                       .failure = model.failure};
    for (const auto& [device_id, device] : devices_) {
      const auto found = device.instances.find(id);
      if (found == device.instances.end()) {
        continue;
      }
      const Instance& instance = found->second;
      if (instance.stage == InstanceStage::kSuspended) {
        status.requests_waiting += std::ssize(instance.in_flight);
        continue;
      }
      Residency residency = residency_of(instance);
      if (instance.apart && gathered(id, device_id).complete < gathered(id, device_id).shards) {
        residency = Residency::kLoading;
      }
      if (!status.device || residency == Residency::kServing) {
        status.residency = residency;
        status.device = device_id;
      }
      status.kv_pages += instance.kv_pages;
      status.requests_running += std::ssize(instance.in_flight);
    }
    add_shards(model, status);
    statuses.push_back(std::move(status));
  }
  return statuses;
}

/// Its bytes are those of all its shards.
void ManagerCore::Impl::add_shards(const ModelState& model, ModelStatus& status) const {
  if (!model.cut()) {
    return;
  }
  for (const ShardPlace& place : model.config.groups.begin()->second) {
    const ModelState& shard = models_.at(place.model);
    status.image_bytes += shard.config.image_bytes;
    status.loaded_bytes += shard.image_ready_bytes;
    status.host_cached = status.host_cached && shard.host_cached;
  }
  if (status.device) {
    for (const ShardPlace& place : model.config.groups.at(*status.device)) {
      status.peers.push_back(place.device);
    }
    status.kv_pages *= 1 + std::ssize(status.peers);
  }
}

/// A further shard in its group is as rank 0 of that is, and has as much KV.
std::vector<ResidentStatus> ManagerCore::Impl::residents(const DeviceState& device) const {
  std::vector<ResidentStatus> residents;
  for (const auto& [id, here] : device.instances) {
    const ModelState& model = models_.at(id);
    const ModelId whole = model.config.part_of.value_or(id);
    const Instance* leader = leading(device, id);
    const Instance& instance = leader == nullptr ? here : *leader;
    ResidentStatus status{.model = models_.at(whole).config.name,
                          .residency = residency_of(instance),
                          .foreign = model.foreign(),
                          .requests_running = std::ssize(instance.in_flight)};
    const auto footprint = model.config.footprints.find(device.config.id);
    if (model.foreign()) {
      status.weights_pages = here.kv_pages;
    } else if (footprint != model.config.footprints.end()) {
      status.weights_pages = footprint->second.image_pages;
      status.kv_pages = instance.kv_pages;
    }
    residents.push_back(std::move(status));
  }
  return residents;
}

std::vector<DeviceStatus> ManagerCore::Impl::devices() const {
  std::vector<DeviceStatus> statuses;
  for (const auto& [id, device] : devices_) {
    statuses.push_back({.id = id,
                        .name = device.config.name,
                        .up = device.up,
                        .epoch = device.epoch,
                        .restarts = device.restarts,
                        .page_bytes = device.config.page_bytes,
                        .usage = usage_of(device),
                        .residents = residents(device),
                        .serving = device.serving,
                        .switching = device.switching});
  }
  return statuses;
}

/// As its worker counts it. What a group's engines hold of KV only the core of its leader knows:
/// equally many pages on each of them.
ledger::PoolUsage ManagerCore::Impl::usage_of(const DeviceState& device) const {
  ledger::PoolUsage usage = device.usage;
  for (const auto& [model, instance] : device.instances) {
    const bool follows = instance.leader && instance.stage == InstanceStage::kMember;
    if (!follows || instance.apart) {
      continue;
    }
    for (const auto kind : {ledger::LeaseKind::kKvOwn, ledger::LeaseKind::kKvCached}) {
      const ledger::Share& led = devices_.at(*instance.leader).usage.of(kind);
      ledger::Share& own = usage.by_kind.at(static_cast<std::size_t>(kind));
      usage.free = std::max<std::int64_t>(usage.free + own.reserved - led.reserved, 0);
      own = led;
    }
  }
  return usage;
}

std::int64_t ManagerCore::Impl::tokens_max(ModelId model) const {
  std::int64_t most = 0;
  for (const auto& [id, device] : devices_) {
    most = std::max(most, tokens_max(model, id));
  }
  return most;
}

/// With the KV that every device of its group has room for.
std::int64_t ManagerCore::Impl::tokens_max(ModelId model, DeviceId device) const {
  const auto found = models_.find(model);
  std::int64_t most = tokens_alone(model, device);
  if (found != models_.end() && found->second.config.groups.contains(device)) {
    for (const ShardPlace& place : found->second.config.groups.at(device)) {
      most = std::min(most, tokens_alone(place.model, place.device));
    }
  }
  return most;
}

std::int64_t ManagerCore::Impl::tokens_alone(ModelId model, DeviceId device) const {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.config.footprints.contains(device)) {
    return 0;
  }
  const policy::Footprint& footprint = found->second.config.footprints.at(device);
  const std::int64_t pages = devices_.at(device).config.pages;
  if (found->second.foreign()) {
    return engine_pages(found->second) <= pages ? found->second.config.context : 0;
  }
  if (policy::pages_to_load(footprint) > pages) {
    return 0;
  }
  return policy::tokens_that_fit(footprint.kv,
                                 pages - footprint.image_pages - footprint.overhead_pages,
                                 found->second.config.context);
}

void ManagerCore::Impl::check_invariants() const {
  std::map<ModelId, std::size_t> counted;
  for (const auto& [id, request] : requests_) {
    const ModelState& model = models_.at(request.model);
    ++counted[request.model];
    const QueueKey key{.priority = request.priority, .order = request.order};
    HEDDLE_CHECK(model.waiting.contains(key) != request.device.has_value());
    if (request.device) {
      const Instance& instance = devices_.at(*request.device).instances.at(request.model);
      HEDDLE_CHECK(request.need <= tokens_max(request.model, *request.device));
      HEDDLE_CHECK(instance.in_flight.contains(id));
    }
  }
  for (const auto& [id, model] : models_) {
    HEDDLE_CHECK(model.requests == counted[id]);
    HEDDLE_CHECK(model.waiting.size() <= model.requests);
  }
  for (const auto& [id, device] : devices_) {
    HEDDLE_CHECK(!device.alone || requests_.contains(*device.alone));
    for (const auto& [model, instance] : device.instances) {
      HEDDLE_CHECK(models_.contains(model));
      const bool foreign = models_.at(model).foreign();
      HEDDLE_CHECK(device.up || foreign);
      HEDDLE_CHECK(foreign || instance.stage != InstanceStage::kSuspended);
      const bool resident =
          instance.stage == InstanceStage::kServing || instance.stage == InstanceStage::kDraining;
      HEDDLE_CHECK(resident || foreign || instance.stage == InstanceStage::kEvicting ||
                   instance.in_flight.empty());
      HEDDLE_CHECK(instance.leader.has_value() == models_.at(model).config.part_of.has_value());
      for (const RequestId request : instance.in_flight) {
        HEDDLE_CHECK(requests_.at(request).device == id);
      }
    }
    if (device.plan) {
      const auto wanted = device.instances.find(device.plan->model);
      HEDDLE_CHECK(device.plan->lacks > 0 || wanted == device.instances.end() ||
                   wanted->second.stage == InstanceStage::kSuspended);
    }
  }
  check_groups();
}

ManagerCore::ManagerCore() : impl_(std::make_unique<Impl>()) {}
ManagerCore::~ManagerCore() = default;
ManagerCore::ManagerCore(ManagerCore&&) noexcept = default;
ManagerCore& ManagerCore::operator=(ManagerCore&&) noexcept = default;

void ManagerCore::step(Instant now,
                       const ManagerEvent& event,
                       std::vector<ManagerCommand>& commands) {
  impl_->step(now, event, commands);
}

std::vector<ModelStatus> ManagerCore::models() const {
  return impl_->models();
}

std::vector<DeviceStatus> ManagerCore::devices() const {
  return impl_->devices();
}

std::int64_t ManagerCore::tokens_max(ModelId model) const {
  return impl_->tokens_max(model);
}

void ManagerCore::check_invariants() const {
  impl_->check_invariants();
}

}  // namespace heddle::core
