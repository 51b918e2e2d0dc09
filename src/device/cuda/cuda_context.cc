#include "device/cuda/cuda_context.h"

#include <array>
#include <utility>

#include "device/cuda/device_info.h"

namespace heddle::device {
namespace {

/// Errors after which a context is of no use any more, by the driver's documentation.
bool is_for_good(CUresult status) {
  constexpr std::array kForGood = {
      kCudaDeinitialized,
      kCudaDeviceUnavailable,
      kCudaEccUncorrectable,
      kCudaNvlinkUncorrectable,
      kCudaContained,
      kCudaLaunchTimeout,
      kCudaContextIsDestroyed,
      kCudaMpsClientTerminated,
      kCudaUnknown,
  };
  for (const CUresult each : kForGood) {
    if (status == each) {
      return true;
    }
  }
  return status == kCudaIllegalAddress || status == kCudaAssert ||
         (status >= kCudaHardwareStackError && status <= kCudaLaunchFailed);
}

}  // namespace

Result<std::unique_ptr<CudaContext>> CudaContext::create(std::shared_ptr<const Driver> driver,
                                                         int ordinal) {
  const DriverApi& api = driver->api();
  int count = 0;
  if (api.cuDeviceGetCount(&count) != kCudaSuccess || ordinal < 0 || ordinal >= count) {
    return Error{Code::kNotFound,
                 "there is no GPU " + std::to_string(ordinal) + ": the CUDA driver sees " +
                     std::to_string(count)};
  }
  CUdevice handle = 0;
  std::array<char, 128> name{};
  const std::string number = "GPU " + std::to_string(ordinal);
  CUresult status = api.cuDeviceGet(&handle, ordinal);
  if (status == kCudaSuccess) {
    status = api.cuDeviceGetName(name.data(), static_cast<int>(name.size()) - 1, handle);
  }
  if (status != kCudaSuccess) {
    return Error{Code::kUnavailable, number + ": " + driver->describe(status)};
  }
  std::unique_ptr<CudaContext> context(
      new CudaContext(std::move(driver), handle, number + " (" + name.data() + ")"));
  status = api.cuDevicePrimaryCtxRetain(&context->context_, handle);
  if (auto retained = context->check("create a context", status); !retained) {
    context->context_ = nullptr;
    return retained.error();
  }
  context->make_current();
  return context;
}

CudaContext::~CudaContext() {
  if (context_ != nullptr) {
    (void)api().cuDevicePrimaryCtxRelease_v2(handle_);
  }
}

std::string CudaContext::uuid() const {
  CUuuid uuid{};
  return api().cuDeviceGetUuid_v2(&uuid, handle_) == kCudaSuccess ? uuid_text(uuid) : "";
}

int CudaContext::attribute(int which) const {
  int value = 0;
  return api().cuDeviceGetAttribute(&value, which, handle_) == kCudaSuccess ? value : 0;
}

Error CudaContext::failure(const std::string& attempt, CUresult status) {
  const std::lock_guard lock(mutex_);
  if (loss_) {
    return *loss_;
  }
  const std::string why = attempt + ": " + driver_->describe(status);
  if (is_for_good(status)) {
    loss_ = Error{Code::kUnavailable, label_ + " is lost to this process: " + why};
    is_lost_.store(true, std::memory_order_release);
    return *loss_;
  }
  const Code code = status == kCudaOutOfMemory ? Code::kResourceExhausted : Code::kUnavailable;
  return Error{code, label_ + ": " + why};
}

std::optional<Error> CudaContext::lost() const {
  if (!is_lost_.load(std::memory_order_acquire)) {
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  return loss_;
}

}  // namespace heddle::device
