#include "base/host_memory.h"
#include "config/config.h"
#include "device/cuda/device_info.h"
#include "ops/cuda/kernel_image.h"

#include <sched.h>

namespace heddle::config {

namespace {

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
  machine.memory = host_memory().total;
  find_gpus(machine);
  return machine;
}

}  // namespace heddle::config
