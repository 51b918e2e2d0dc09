#include <fstream>

#include "config/config.h"
#include "device/cuda/device_info.h"
#include "ops/cuda/kernel_image.h"

#include <sched.h>
#include <unistd.h>

namespace heddle::config {

namespace {

/// The memory limit of the cgroup that a container shows as its root; 0 when there is none.
std::uint64_t cgroup_memory() {
  for (const char* file :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::uint64_t limit = 0;
    if (std::ifstream(file) >> limit) {
      return limit;
    }
  }
  return 0;
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
    machine.gpus.push_back(
        {.name = gpu.name, .memory = gpu.memory_bytes, .usable = gpu.virtual_memory});
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
  machine.memory = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                   static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  find_gpus(machine);
  const std::uint64_t limit = cgroup_memory();
  if (limit > 0 && limit < machine.memory) {
    machine.memory = limit;
  }
  return machine;
}

}  // namespace heddle::config
