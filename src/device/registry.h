#pragma once

#include <memory>
#include <variant>

#include "base/result.h"
#include "device/cpu/arena.h"
#include "device/cpu/cpu_device.h"
#include "device/cuda/cuda_device.h"
#include "device/device.h"

namespace heddle::device {

/// Which device to make, and how: the one place that knows all kinds of them.
using DeviceOptions = std::variant<CpuDeviceOptions, CudaDeviceOptions>;

/// A device of this host, whose arena is `host`: a CPU device's own pages, an accelerator's host
/// pages. Fails as the kind's own way of making it does.
Result<std::unique_ptr<Device>> make_device(const DeviceOptions& options, Arena host);

}  // namespace heddle::device
