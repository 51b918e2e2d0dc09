#pragma once

#include <algorithm>
#include <cstdint>

#include "base/div_up.h"
#include "base/tunables.h"
#include "device/cuda/cuda_stream.h"
#include "ops/cuda/kernel_image.h"
#include "ops/tensor_ref.h"

namespace heddle::ops::cuda {

/// The kernel of that name (a literal) in this program's image.
[[nodiscard]] inline device::KernelId kernel(const char* name) {
  return {.module = &kernel_image(), .name = name};
}

/// A grid in which the blocks of one x share a row of `items`, one for each thread of theirs as
/// long as y goes; then threads take several.
[[nodiscard]] inline device::LaunchShape shape_of_rows(std::int64_t rows, std::int64_t items) {
  const std::int64_t threads_max = tuned(Tuned::kRowThreads);
  const std::int64_t blocks_max = tuned(Tuned::kRowBlocks);
  const std::int64_t threads = std::clamp(div_up(items, 32) * 32, std::int64_t{32}, threads_max);
  const std::int64_t blocks = std::clamp(div_up(items, threads), std::int64_t{1}, blocks_max);
  return {.grid = {static_cast<std::uint32_t>(rows), static_cast<std::uint32_t>(blocks), 1},
          .block = {static_cast<std::uint32_t>(threads), 1, 1}};
}

/// Whether elements of `dtype` at `data`, and what lies whole multiples of `strides` elements
/// further, can be moved `count` at a time by one aligned access.
template <class... Strides>
[[nodiscard]] bool moves_by(std::int64_t count,
                            const std::byte* data,
                            DType dtype,
                            Strides... strides) {
  const std::int64_t bytes = count * dtype_size(dtype);
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0 &&
         ((strides % count == 0) && ...);
}

}  // namespace heddle::ops::cuda
