#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace heddle {

/// Uninitialised memory that begins at a cache line (64 bytes), as vector loads and copies like it.
struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedDelete>;  // NOLINT(*-avoid-c-arrays)

[[nodiscard]] inline AlignedBytes allocate_aligned(std::size_t bytes) {
  return AlignedBytes(new (std::align_val_t{64}) std::byte[bytes]);
}

}  // namespace heddle
