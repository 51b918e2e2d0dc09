#pragma once

#include <memory>
#include <string>

#include "base/driver_library.h"
#include "base/test_places.h"
#include "cuda_emulator/control.h"
#include "device/cuda/driver.h"
#include "device/cuda/module_image.h"

namespace heddle::emulator {

/// The kernels of probe_kernels.cu.
const device::ModuleImage& probe_image();

/// The emulated driver, for tests, on a machine of its own: one at a time in a process.
class EmulatedDriver {
 public:
  /// `machine`: as heddle_cuda_emulator_configure takes it (config.h has the keys).
  explicit EmulatedDriver(const std::string& machine = "")
      : library_(DriverLibrary::open(places::kCudaEmulator).value()) {
    const char* (*configure)(const char*) = nullptr;
    HEDDLE_CHECK(library_.find("heddle_cuda_emulator_configure", configure) &&
                 library_.find("heddle_cuda_emulator_fail", fail_) &&
                 library_.find("heddle_cuda_emulator_calls", calls_) &&
                 library_.find("heddle_cuda_emulator_hold", hold_) &&
                 library_.find("heddle_cuda_emulator_alive", alive_));
    HEDDLE_CHECK(std::string(configure(machine.c_str())).empty());
  }

  /// As the product opens it.
  [[nodiscard]] static Result<std::shared_ptr<const device::Driver>> open() {
    return device::Driver::open(places::kCudaEmulator);
  }
  /// The `nth` such call from now on (1 is the next) fails, once. "kernel" loses the device.
  void fail(const char* call, unsigned nth, device::CUresult status) const {
    fail_(call, nth, status);
  }
  /// Such calls wait from now on; wait_held() returns when one does; let_go() ends it.
  void hold(const char* call) const { hold_(call, 1); }
  void wait_held(const char* call) const { hold_(call, 2); }
  void let_go(const char* call) const { hold_(call, 0); }
  [[nodiscard]] unsigned long calls(const char* call) const { return calls_(call); }
  /// What was taken of the driver and not given back: "" for nothing.
  [[nodiscard]] std::string alive() const { return alive_(); }

 private:
  DriverLibrary library_;
  void (*fail_)(const char*, unsigned, device::CUresult) = nullptr;
  unsigned long (*calls_)(const char*) = nullptr;
  void (*hold_)(const char*, int) = nullptr;
  const char* (*alive_)() = nullptr;
};

}  // namespace heddle::emulator
