#include "device/registry.h"

#include <utility>

namespace heddle::device {

Result<std::unique_ptr<Device>> make_device(const DeviceOptions& options, Arena host) {
  if (const auto* const cpu = std::get_if<CpuDeviceOptions>(&options)) {
    return std::unique_ptr<Device>(std::make_unique<CpuDevice>(std::move(host), *cpu));
  }
  auto device = CudaDevice::create(std::get<CudaDeviceOptions>(options), std::move(host));
  if (!device) {
    return device.error();
  }
  return std::unique_ptr<Device>(std::move(*device));
}

}  // namespace heddle::device
