#include <algorithm>
#include <utility>
#include <vector>

#include "base/host_memory.h"
#include "config/config.h"
#include "device/cuda/device_info.h"
#include "device/cuda/nvml.h"
#include "ops/cuda/kernel_image.h"

#include <sched.h>

namespace heddle::config {

namespace {

/// As it was when this process first asked: what is default does not change when a file is read
/// again. Nothing where NVML cannot be asked.
const std::vector<device::GpuMemory>& memory_at_start() {
  static const std::vector<device::GpuMemory> memory = [] {
    const auto nvml = device::Nvml::open();
    auto read = nvml ? (*nvml)->read() : Result<std::vector<device::GpuMemory>>(nvml.error());
    return read ? std::move(*read) : std::vector<device::GpuMemory>();
  }();
  return memory;
}

/// What a GPU lacks that kernels or pages of ours need; empty: nothing.
std::string lacking(const device::CudaDeviceInfo& gpu) {
  constexpr int kCapabilityMin = 8;
  if (gpu.capability_major < kCapabilityMin) {
    return "has compute capability " + std::to_string(gpu.capability_major) + "." +
           std::to_string(gpu.capability_minor) + ", and " + std::to_string(kCapabilityMin) +
           ".0 or later is needed";
  }
  return gpu.virtual_memory ? "" : "has no virtual memory management";
}

/// What it lacks to have guests of another GPU, or with it; empty: nothing.
std::string lacking_for_guests(const device::CudaDeviceInfo& gpu) {
  if (!gpu.flags) {
    return "has no stream memory operations";
  }
  return gpu.shares ? "" : "shares no memory with other processes";
}

/// The driver's GPUs; the error says why there are none that kernels of ours run on.
Result<std::vector<device::CudaDeviceInfo>> list_gpus(const device::ModuleImage& kernels) {
  const auto driver = device::Driver::open();
  if (!driver) {
    return driver.error();
  }
  const Result<void> suits = (*driver)->suits(kernels);
  return suits ? device::list_cuda_devices(**driver) : suits.error();
}

void find_gpus(Machine& machine) {
  const device::ModuleImage& kernels = ops::cuda::kernel_image();
  if (kernels.parts.empty()) {
    machine.no_gpus = std::string("this build has no kernels for any: ") + kernels.note;
    return;
  }
  const auto gpus = list_gpus(kernels);
  if (!gpus) {
    machine.no_gpus = gpus.error().message;
    return;
  }
  for (const device::CudaDeviceInfo& gpu : *gpus) {
    machine.gpus.push_back({.name = gpu.name,
                            .memory = gpu.memory_bytes,
                            .unusable = lacking(gpu),
                            .page = gpu.page_bytes,
                            .no_guests = lacking_for_guests(gpu),
                            .peers = gpu.peers});
    const auto& memory = memory_at_start();
    const auto found = std::ranges::find(memory, gpu.uuid, &device::GpuMemory::uuid);
    if (found != memory.end()) {
      machine.gpus.back().others = device::held_by_others(*found);
      machine.gpus.back().holders = device::name_others(*found);
    }
  }
  if (gpus->empty()) {
    machine.no_gpus = "the driver has none";
  }
}

}  // namespace

Machine this_machine() {
  Machine machine;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &allowed)) {
        machine.cores.push_back(core);
      }
    }
  }
  if (machine.cores.empty()) {
    machine.cores.push_back(0);
  }
  machine.memory = host_memory().total;
  find_gpus(machine);
  return machine;
}

}  // namespace heddle::config
