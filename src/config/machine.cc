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

void find_gpus(Machine& machine) {
  const device::ModuleImage& kernels = ops::cuda::kernel_image();
  if (kernels.parts.empty()) {
    machine.no_gpus = std::string("this build has no kernels for any: ") + kernels.note;
    return;
  }
  const auto gpus = device::list_cuda_devices();
  if (!gpus) {
    machine.no_gpus = gpus.error().message;
    return;
  }
  for (const device::CudaDeviceInfo& gpu : *gpus) {
    machine.gpus.push_back({.name = gpu.name,
                            .memory = gpu.memory_bytes,
                            .usable = gpu.virtual_memory,
                            .page = gpu.page_bytes});
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
