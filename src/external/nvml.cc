#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "base/driver_library.h"
#include "external/memory_meter.h"

namespace heddle::external {

namespace {

// The few declarations of nvml.h that are needed, as its binary interface has them.
using NvmlDevice = void*;
using NvmlStatus = int;
constexpr NvmlStatus kSuccess = 0;
constexpr NvmlStatus kInsufficientSize = 7;
/// A number of bytes that the driver does not know.
constexpr unsigned long long kNotAvailable = ~0ULL;

struct NvmlProcess {  // nvmlProcessInfo_v2_t
  unsigned int pid = 0;
  unsigned long long used_bytes = 0;
  unsigned int gpu_instance = 0;
  unsigned int compute_instance = 0;
};

struct Calls {
  NvmlStatus (*init)() = nullptr;
  NvmlStatus (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlStatus) = nullptr;
  NvmlStatus (*device_count)(unsigned int*) = nullptr;
  NvmlStatus (*device_by_index)(unsigned int, NvmlDevice*) = nullptr;
  NvmlStatus (*processes)(NvmlDevice, unsigned int*, NvmlProcess*) = nullptr;
};

class Nvml final : public DeviceMeter {
 public:
  Nvml(DriverLibrary library, const Calls& calls) : library_(std::move(library)), calls_(calls) {}
  ~Nvml() override { (void)calls_.shutdown(); }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  [[nodiscard]] Result<std::uint64_t> device_bytes(const std::vector<pid_t>& pids) override {
    unsigned int devices = 0;
    if (const NvmlStatus status = calls_.device_count(&devices); status != kSuccess) {
      return failed("count devices", status);
    }
    std::uint64_t sum = 0;
    for (unsigned int index = 0; index < devices; ++index) {
      NvmlDevice device = nullptr;
      if (const NvmlStatus status = calls_.device_by_index(index, &device); status != kSuccess) {
        return failed("open a device", status);
      }
      const Result<std::vector<NvmlProcess>> processes = processes_of(device);
      if (!processes) {
        return processes.error();
      }
      for (const NvmlProcess& process : *processes) {
        const bool ours =
            std::find(pids.begin(), pids.end(), static_cast<pid_t>(process.pid)) != pids.end();
        sum += ours && process.used_bytes != kNotAvailable ? process.used_bytes : 0;
      }
    }
    return sum;
  }

 private:
  /// More may come between asking how many there are and asking who.
  Result<std::vector<NvmlProcess>> processes_of(NvmlDevice device) const {
    std::vector<NvmlProcess> processes(64);
    for (;;) {
      auto count = static_cast<unsigned int>(processes.size());
      const NvmlStatus status = calls_.processes(device, &count, processes.data());
      if (status == kInsufficientSize) {
        processes.resize(std::max<std::size_t>(count, processes.size()) * 2);
        continue;
      }
      if (status != kSuccess) {
        return failed("list the processes of a device", status);
      }
      processes.resize(count);
      return processes;
    }
  }

  [[nodiscard]] Error failed(const std::string& what, NvmlStatus status) const {
    return {Code::kUnavailable, "NVML: " + what + ": " + calls_.error_string(status)};
  }

  DriverLibrary library_;
  Calls calls_;
};

}  // namespace

Result<std::unique_ptr<DeviceMeter>> open_nvml() {
  Result<DriverLibrary> library = DriverLibrary::open("libnvidia-ml.so.1");
  if (!library) {
    return library.error();
  }
  Calls calls;
  const std::array<Result<void>, 6> found = {
      library->find("nvmlInit_v2", calls.init),
      library->find("nvmlShutdown", calls.shutdown),
      library->find("nvmlErrorString", calls.error_string),
      library->find("nvmlDeviceGetCount_v2", calls.device_count),
      library->find("nvmlDeviceGetHandleByIndex_v2", calls.device_by_index),
      library->find("nvmlDeviceGetComputeRunningProcesses_v3", calls.processes)};
  for (const Result<void>& each : found) {
    if (!each) {
      return each.error();
    }
  }
  if (const NvmlStatus status = calls.init(); status != kSuccess) {
    return Error{Code::kUnavailable, std::string("NVML: ") + calls.error_string(status)};
  }
  return std::unique_ptr<DeviceMeter>(std::make_unique<Nvml>(std::move(*library), calls));
}

}  // namespace heddle::external
