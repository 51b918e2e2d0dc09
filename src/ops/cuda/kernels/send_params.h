#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops::cuda {

/// heddle_send: the threads of all blocks copy `items` words, or sixteen bytes at a time.
struct SendParams {
  const std::byte* source;  ///< May be pinned memory of the host.
  std::byte* target;
  std::int64_t items;
  std::int32_t quads;  ///< Both sides and the size are multiples of sixteen bytes.
};

}  // namespace heddle::ops::cuda
