#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// Most tokens of a row: so many weights, of up to 2^kRowWeightBits each, are summed in 64 bits.
constexpr std::int64_t kRowTokensMax = std::int64_t{1} << 19;
constexpr int kRowWeightBits = 44;

/// Most threads that look at one row of logits.
constexpr std::uint32_t kRowThreadsMax = 1024;

/// Threads of the block that looks at a row: at least eight tokens for each, so that a small
/// vocabulary does not wait for threads that have nothing to do, and two warps at least, which
/// share out what they look for. Depends on nothing but the vocabulary, as a sum may depend on it.
[[nodiscard]] constexpr std::uint32_t row_threads(std::int64_t vocab) {
  const auto threads = static_cast<std::uint32_t>((vocab + 255) / 256) * 32;
  return threads < 64 ? 64 : threads < kRowThreadsMax ? threads : kRowThreadsMax;
}

}  // namespace heddle::ops::cuda
