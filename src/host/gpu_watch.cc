#include "host/gpu_watch.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "device/cuda/device_info.h"
#include "device/cuda/nvml.h"

#include <pthread.h>

namespace heddle::host {

namespace {

constexpr auto kEvery = std::chrono::seconds(2);

/// By device. Empty, and said, where the driver does not tell.
std::map<DeviceId, std::string> uuids_of(const std::map<DeviceId, int>& gpus) {
  std::map<DeviceId, std::string> uuids;
  const auto known = device::list_cuda_devices();
  for (const auto& [device, gpu] : gpus) {
    if (known && std::cmp_less(gpu, known->size())) {
      uuids[device] = (*known)[static_cast<std::size_t>(gpu)].uuid;
    }
  }
  return uuids;
}

}  // namespace

GpuWatch::GpuWatch(std::map<DeviceId, int> gpus) : gpus_(std::move(gpus)) {
  if (!gpus_.empty()) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
}

void GpuWatch::run(const std::stop_token& stop) {
  (void)::pthread_setname_np(::pthread_self(), "gpu watch");
  const auto nvml = device::Nvml::open();
  if (!nvml) {
    log::info("what others hold of GPUs is not known", {{"reason", nvml.error().message}});
    return;
  }
  const std::map<DeviceId, std::string> uuids = uuids_of(gpus_);
  std::mutex alone;
  std::condition_variable_any never;
  while (!stop.stop_requested()) {
    const auto gpus = (*nvml)->read();
    std::map<DeviceId, Seen> seen;
    for (const auto& [device, uuid] : uuids) {
      if (!gpus) {
        break;
      }
      const auto found = std::ranges::find(*gpus, uuid, &device::GpuMemory::uuid);
      if (found != gpus->end()) {
        seen[device] = {.others = device::held_by_others(*found),
                        .ours = std::ranges::any_of(found->processes, [](const auto& process) {
                          return device::is_ours(process.pid);
                        })};
      }
    }
    {
      const std::lock_guard lock(mutex_);
      seen_ = std::move(seen);
    }
    std::unique_lock lock(alone);
    (void)never.wait_for(lock, stop, kEvery, [] { return false; });
  }
}

std::optional<std::uint64_t> GpuWatch::others_bytes(DeviceId device, bool running) const {
  const std::lock_guard lock(mutex_);
  const auto found = seen_.find(device);
  if (found == seen_.end() || (running && !found->second.ours)) {
    return std::nullopt;
  }
  return found->second.others;
}

}  // namespace heddle::host
