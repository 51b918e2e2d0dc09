#include <algorithm>

#include "sim/planes/live.h"

namespace heddle::sim {

/// The worker of a device has died, with all that it had: with its GPU, or with its host, or by
/// itself. Those that ran a group or a pipeline with it are of no use without it, and are ended.
void LivePlane::die(const Turn& turn, DeviceId id) {
  LiveDevice& place = device(id);
  if (!place.up()) {
    return;
  }
  const HostId host = turn.world.gpu(place.gpu()).host;
  if (!turn.world.host(host).up) {
    return lose_host(turn, host, place);
  }
  hear(core::WorkerDown{.device = id, .epoch = place.epoch()});
  bury(turn, place);
}

/// Nothing is heard of its host any more, which is said once.
void LivePlane::lose_host(const Turn& turn, HostId host, LiveDevice& place) {
  if (lost_hosts_.insert(host).second) {
    hear(core::HostLost{.host = map_->host(host)});
    tell_images(turn, host);
  }
  bury(turn, place);
}

/// What is left in the world of what it had goes as well; the next worker comes up at once, if the
/// GPU is there.
void LivePlane::bury(const Turn& turn, LiveDevice& place) {
  const std::map<ModelId, LiveDevice::Resident> had = place.residents();
  place.go_down();
  for (const LiveDevice::Waiting& each : place.take(turn.world)) {
    lose(place.id(), each.request);
  }
  std::erase_if(gathering_, [&](const auto& entry) {
    return std::ranges::any_of(entry.second,
                               [&](const auto& part) { return part.second.device == place.id(); });
  });
  for (const auto& [model, resident] : had) {
    if (!resident.replica) {
      continue;
    }
    opening_.erase(*resident.replica);
    const auto found = ordered_.find(*resident.replica);
    const Ordered lost = found == ordered_.end() ? Ordered{} : ordered_.extract(found).mapped();
    turn.actions.evict(*resident.replica, Reason::kFault, std::nullopt);
    for (const auto& [other, part] : lost.places) {
      die(turn, other);
    }
  }
  if (turn.world.gpu(place.gpu()).up) {
    gpu_up(turn, place.gpu());
  }
}

/// The world tells of what was on a GPU that failed before it tells of the GPU.
void LivePlane::find_dead(const Turn& turn) {
  for (const LiveDevice& each : devices_) {
    if (each.up() && !turn.world.gpu(each.gpu()).up) {
      die(turn, each.id());
    }
  }
}

void LivePlane::gpu_up(const Turn& turn, GpuId gpu) {
  LiveDevice& place = devices_[gpu.value()];
  if (place.up() || !turn.world.gpu(gpu).up) {
    return;
  }
  lost_hosts_.erase(turn.world.gpu(gpu).host);
  place.come_up();
  hear(core::WorkerUp{.device = place.id(), .epoch = place.epoch()});
  touch(place.id(), true);
}

}  // namespace heddle::sim
