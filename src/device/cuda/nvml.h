#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/driver_library.h"
#include "base/result.h"

#include <sys/types.h>

namespace heddle::device {

/// A process that holds memory of a GPU.
struct GpuProcess {
  pid_t pid = 0;
  std::uint64_t bytes = 0;  ///< 0 where the driver does not say.
};

/// The memory of one GPU, and who has it.
struct GpuMemory {
  std::string uuid{};  ///< As CudaDeviceInfo has it.
  std::uint64_t total = 0;
  std::uint64_t used = 0;  ///< By anybody, the driver included.
  std::vector<GpuProcess> processes{};
};

/// NVIDIA's management library, which is looked for at run time. It knows processes by their
/// numbers outside of containers: inside of one it may know none, or by other numbers. Any thread,
/// one call at a time.
class Nvml {
 public:
  /// libnvidia-ml.so.1, or the library that the environment's HEDDLE_NVML names. kUnavailable, with
  /// the reason, where there is none or it finds no driver.
  static Result<std::unique_ptr<Nvml>> open();
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// All GPUs of the machine, in the library's order, which need not be the driver's.
  [[nodiscard]] Result<std::vector<GpuMemory>> read() const;

 private:
  struct Calls;
  Nvml(DriverLibrary library, std::unique_ptr<const Calls> calls);
  Result<GpuMemory> read(unsigned index) const;

  DriverLibrary library_;
  std::unique_ptr<const Calls> calls_;
};

/// Whether the process is this one, descends from it, as workers and engines do, or runs this very
/// program, as the workers of another server do.
[[nodiscard]] bool is_ours(pid_t pid);

/// What processes hold of that GPU that are not ours [bytes].
[[nodiscard]] std::uint64_t held_by_others(const GpuMemory& gpu);

/// "python3 (4711) 50.0 GiB, process (4712) 1.00 GiB": of those processes the largest, by name and
/// number; "" where there is none.
[[nodiscard]] std::string name_others(const GpuMemory& gpu);

/// Who else holds memory of the GPU with that UUID, as name_others(); "" where that is not known.
[[nodiscard]] std::string name_others(const std::string& uuid);

}  // namespace heddle::device
