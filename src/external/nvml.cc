#include "device/cuda/nvml.h"

#include <algorithm>
#include <utility>

#include "external/memory_meter.h"

namespace heddle::external {

namespace {

class NvmlMeter final : public DeviceMeter {
 public:
  explicit NvmlMeter(std::unique_ptr<device::Nvml> nvml) : nvml_(std::move(nvml)) {}

  [[nodiscard]] Result<std::uint64_t> device_bytes(const std::vector<pid_t>& pids) override {
    const auto gpus = nvml_->read();
    if (!gpus) {
      return gpus.error();
    }
    std::uint64_t sum = 0;
    for (const device::GpuMemory& gpu : *gpus) {
      for (const device::GpuProcess& process : gpu.processes) {
        const bool asked = std::ranges::find(pids, process.pid) != pids.end();
        sum += asked ? process.bytes : 0;
      }
    }
    return sum;
  }

 private:
  std::unique_ptr<device::Nvml> nvml_;
};

}  // namespace

Result<std::unique_ptr<DeviceMeter>> open_nvml() {
  auto nvml = device::Nvml::open();
  if (!nvml) {
    return nvml.error();
  }
  return std::unique_ptr<DeviceMeter>(std::make_unique<NvmlMeter>(std::move(*nvml)));
}

}  // namespace heddle::external
