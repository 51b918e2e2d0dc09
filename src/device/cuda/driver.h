#pragma once

#include <memory>
#include <string>

#include "base/driver_library.h"
#include "base/result.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/module_image.h"

namespace heddle::device {

/// CUDA's driver library, as this machine has it. Stateless beside that: all who open it share what
/// the driver keeps for the process. Thread safe.
class Driver {
 public:
  /// Loads libcuda.so.1, or the library that the environment's HEDDLE_CUDA_DRIVER names, and starts
  /// it. kNotFound: there is no such library, hence no GPU. kUnavailable: it is too old, with its
  /// version or the function that it lacks, or it does not start, with its reason.
  static Result<std::shared_ptr<const Driver>> open();
  /// The same for a library of that name or path.
  static Result<std::shared_ptr<const Driver>> open(const std::string& library);

  [[nodiscard]] const DriverApi& api() const { return api_; }
  /// Of CUDA that it supports: 13000 is 13.0.
  [[nodiscard]] int version() const { return version_; }

  /// kUnavailable where it is too old for the image's kernels, with what they were made by.
  [[nodiscard]] Result<void> suits(const ModuleImage& image) const;

  /// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)".
  [[nodiscard]] std::string describe(CUresult status) const;

 private:
  explicit Driver(DriverLibrary library) : library_(std::move(library)) {}

  DriverLibrary library_;
  DriverApi api_{};
  int version_ = 0;
};

/// What the driver's library is called where it is installed.
inline constexpr const char* kDriverLibrary = "libcuda.so.1";

/// The oldest driver that has all we use.
constexpr int kDriverVersionMin = 12040;

}  // namespace heddle::device
