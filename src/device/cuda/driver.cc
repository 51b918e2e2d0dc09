#include "device/cuda/driver.h"

#include <cstdlib>
#include <utility>

namespace heddle::device {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Fills `api` from `library`, in the order of the list; the first that is not there is an error.
Result<void> find_all(const DriverLibrary& library, DriverApi& api) {
  Result<void> found;
#define HEDDLE_CUDA_FIND(name, ...)        \
  if (found) {                             \
    found = library.find(#name, api.name); \
  }
  HEDDLE_CUDA_CALLS(HEDDLE_CUDA_FIND)
#undef HEDDLE_CUDA_FIND
  return found;
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::open() {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment.
  const char* const named = std::getenv("HEDDLE_CUDA_DRIVER");
  return open(named == nullptr ? kDriverLibrary : named);
}

Result<std::shared_ptr<const Driver>> Driver::open(const std::string& library_name) {
  auto library = DriverLibrary::open(library_name);
  if (!library) {
    return Error{Code::kNotFound, "no CUDA driver: " + library.error().message};
  }
  std::shared_ptr<Driver> driver(new Driver(std::move(*library)));
  DriverApi& api = driver->api_;
  // The version first: "supports CUDA 11.4" says more than the name of a function.
  if (auto found = driver->library_.find("cuDriverGetVersion", api.cuDriverGetVersion); !found) {
    return found.error();
  }
  if (api.cuDriverGetVersion(&driver->version_) != kCudaSuccess ||
      driver->version_ < kDriverVersionMin) {
    return Error{Code::kUnavailable,
                 "the CUDA driver is too old: it supports CUDA " + version_text(driver->version_) +
                     ", and " + version_text(kDriverVersionMin) + " or later is needed"};
  }
  if (auto found = find_all(driver->library_, api); !found) {
    return found.error();
  }
  if (const CUresult status = api.cuInit(0); status != kCudaSuccess) {
    const Code code = status == kCudaNoDevice ? Code::kNotFound : Code::kUnavailable;
    return Error{code, "the CUDA driver does not start: " + driver->describe(status)};
  }
  return std::shared_ptr<const Driver>(std::move(driver));
}

Result<void> Driver::suits(const ModuleImage& image) const {
  if (version_ < image.driver_min) {
    return Error{Code::kUnavailable,
                 std::string("the CUDA driver is too old for this build's kernels (") + image.note +
                     "): it supports CUDA " + version_text(version_) + ", and " +
                     version_text(image.driver_min) + " or later is needed"};
  }
  return {};
}

std::string Driver::describe(CUresult status) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api_.cuGetErrorName(status, &name) != kCudaSuccess || name == nullptr ||
      api_.cuGetErrorString(status, &text) != kCudaSuccess || text == nullptr) {
    return "CUDA error " + std::to_string(status);
  }
  return std::string(name) + " (" + text + ")";
}

}  // namespace heddle::device
