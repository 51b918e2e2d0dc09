#pragma once

#include <cstdint>

#include "base/time.h"
#include "device/cuda/cuda_stream.h"
#include "ops/context.h"
#include "ops/cuda/blas.h"

namespace heddle::ops::cuda {

/// KernelTable::begin_survey and end_survey: of products that the library does. Each is timed with
/// memory that stands in for its weights, as these need not be there yet.
[[nodiscard]] const KernelTable* begin_survey(device::Stream& stream, Duration most);
std::int64_t end_survey(device::Stream& stream);

}  // namespace heddle::ops::cuda
