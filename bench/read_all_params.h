#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::bench {

/// Of heddle_bench_read: reads `words` times 16 bytes from `data`, 16-aligned, and does next to
/// nothing with them. `out` may be written.
struct ReadParams {
  const std::byte* data = nullptr;
  std::int64_t words = 0;
  std::uint32_t* out = nullptr;
};

}  // namespace heddle::bench
