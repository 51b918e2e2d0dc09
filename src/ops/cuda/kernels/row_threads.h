#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// Most threads that look at one row of logits.
constexpr std::uint32_t kRowThreadsMax = 1024;

/// Threads of the block that looks at a row: whole warps, at least eight tokens for each thread, so
/// that a small vocabulary does not wait for threads that have nothing to do. Depends on nothing but
/// the vocabulary, as results may depend on the number of threads.
[[nodiscard]] constexpr std::uint32_t row_threads(std::int64_t vocab) {
  const auto warps = static_cast<std::uint32_t>((vocab + 255) / 256);
  return warps * 32 < kRowThreadsMax ? warps * 32 : kRowThreadsMax;
}

}  // namespace heddle::ops::cuda
