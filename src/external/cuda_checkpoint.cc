#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "base/driver_library.h"
#include "external/device_checkpoint.h"

namespace heddle::external {

namespace {

// The few declarations of cuda.h that are needed, as the driver's binary interface has them.
using CudaStatus = int;
constexpr CudaStatus kSuccess = 0;

struct LockArguments {  // CUcheckpointLockArgs
  unsigned int timeout_ms = 0;
  unsigned int reserved0 = 0;
  std::array<std::uint64_t, 7> reserved1{};
};

struct Calls {
  CudaStatus (*init)(unsigned int) = nullptr;
  CudaStatus (*error_name)(CudaStatus, const char**) = nullptr;
  CudaStatus (*state)(int, int*) = nullptr;
  CudaStatus (*lock)(int, LockArguments*) = nullptr;
  CudaStatus (*save)(int, void*) = nullptr;
  CudaStatus (*restore)(int, void*) = nullptr;
  CudaStatus (*unlock)(int, void*) = nullptr;
};

class CudaCheckpoint final : public DeviceCheckpoint {
 public:
  CudaCheckpoint(DriverLibrary library, const Calls& calls)
      : library_(std::move(library)), calls_(calls) {}

  [[nodiscard]] bool uses_device(pid_t pid) override {
    int state = 0;
    return calls_.state(pid, &state) == kSuccess;
  }

  Result<void> lock(pid_t pid, Duration patience) override {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(patience).count();
    LockArguments arguments;
    arguments.timeout_ms = static_cast<unsigned int>(std::clamp<std::int64_t>(
        ms, 1, std::numeric_limits<unsigned int>::max()));  // 0 would be for ever.
    return check("lock", calls_.lock(pid, &arguments));
  }
  Result<void> save(pid_t pid) override { return check("save", calls_.save(pid, nullptr)); }
  Result<void> restore(pid_t pid) override {
    return check("restore", calls_.restore(pid, nullptr));
  }
  Result<void> unlock(pid_t pid) override { return check("unlock", calls_.unlock(pid, nullptr)); }

 private:
  [[nodiscard]] Result<void> check(const char* what, CudaStatus status) const {
    if (status == kSuccess) {
      return {};
    }
    const char* name = nullptr;
    (void)calls_.error_name(status, &name);
    return Error{Code::kUnavailable,
                 std::string("CUDA checkpoint: ") + what + ": " +
                     (name == nullptr ? "error " + std::to_string(status) : std::string(name))};
  }

  DriverLibrary library_;
  Calls calls_;
};

}  // namespace

Result<std::unique_ptr<DeviceCheckpoint>> open_cuda_checkpoint() {
  Result<DriverLibrary> library = DriverLibrary::open("libcuda.so.1");
  if (!library) {
    return library.error();
  }
  Calls calls;
  const std::array<Result<void>, 7> found = {
      library->find("cuInit", calls.init),
      library->find("cuGetErrorName", calls.error_name),
      library->find("cuCheckpointProcessGetState", calls.state),
      library->find("cuCheckpointProcessLock", calls.lock),
      library->find("cuCheckpointProcessCheckpoint", calls.save),
      library->find("cuCheckpointProcessRestore", calls.restore),
      library->find("cuCheckpointProcessUnlock", calls.unlock)};
  for (const Result<void>& each : found) {
    if (!each) {
      return each.error();
    }
  }
  if (const CudaStatus status = calls.init(0); status != kSuccess) {
    return Error{Code::kUnavailable,
                 "CUDA: the driver does not start: error " + std::to_string(status)};
  }
  return std::unique_ptr<DeviceCheckpoint>(
      std::make_unique<CudaCheckpoint>(std::move(*library), calls));
}

}  // namespace heddle::external
