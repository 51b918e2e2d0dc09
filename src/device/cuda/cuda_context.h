#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "device/cuda/driver.h"

namespace heddle::device {

/// This process on one GPU: the driver's primary context, and whether the GPU can still be used.
/// Some errors (an illegal address in a kernel, an uncorrectable memory error) are for good: then
/// the device is *lost* to this process, and every check reports the error that lost it. Thread
/// safe.
class CudaContext {
 public:
  /// `ordinal` as the driver counts, which CUDA_VISIBLE_DEVICES changes. kNotFound names how many
  /// there are.
  static Result<std::unique_ptr<CudaContext>> create(std::shared_ptr<const Driver> driver,
                                                     int ordinal);
  ~CudaContext();
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;

  [[nodiscard]] const DriverApi& api() const { return driver_->api(); }
  [[nodiscard]] CUdevice handle() const { return handle_; }
  /// "GPU 0 (NVIDIA H100 80GB HBM3)", for messages.
  [[nodiscard]] const std::string& label() const { return label_; }

  /// Makes calls of this thread go to this device. Cheap; before each group of calls.
  void make_current() const { (void)api().cuCtxSetCurrent(context_); }
  /// As CudaDeviceInfo has it; "" where the driver does not tell.
  [[nodiscard]] std::string uuid() const;
  /// 0 where the driver does not know the attribute.
  [[nodiscard]] int attribute(int which) const;

  /// What `call` returned as a result: kResourceExhausted for lack of memory, else kUnavailable,
  /// with a message that names the device, `attempt` (say "map 3 pages: cuMemMap") and the driver's
  /// words.
  Result<void> check(const std::string& attempt, CUresult status) {
    return status == kCudaSuccess ? Result<void>() : Result<void>(failure(attempt, status));
  }
  Error failure(const std::string& attempt, CUresult status);
  /// The error that lost the device, if one did.
  [[nodiscard]] std::optional<Error> lost() const;

 private:
  CudaContext(std::shared_ptr<const Driver> driver, CUdevice handle, std::string label)
      : driver_(std::move(driver)), handle_(handle), label_(std::move(label)) {}

  std::shared_ptr<const Driver> driver_;
  CUdevice handle_;
  std::string label_;
  CUcontext context_ = nullptr;
  std::atomic<bool> is_lost_{false};
  mutable std::mutex mutex_{};
  std::optional<Error> loss_{};
};

}  // namespace heddle::device
