#pragma once

#include "device/cuda/module_image.h"

namespace heddle::ops::cuda {

/// All kernels of kernels/*.cu, as this build has them.
const device::ModuleImage& kernel_image();

}  // namespace heddle::ops::cuda
