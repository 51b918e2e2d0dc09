#pragma once

#include <cstddef>

#include "base/result.h"
#include "device/cuda/cuda_context.h"

namespace heddle::device {

/// Of the host's memory, registered at once [bytes]. Drivers keep 16 bytes for each small page in
/// one allocation of less than 2 GiB, so that a registration of 512 GiB or more fails; there is no
/// harm in less. A power of two, so that no page of an arena lies in two registrations.
inline constexpr std::size_t kPinBytesMax = std::size_t{64} << 30U;

/// Memory of this process that GPUs may use, registered with the driver piece by piece. A copy may
/// not go beyond the piece that it begins in.
class PinnedMemory {
 public:
  /// Registers [memory, memory + bytes) in pieces of `bytes_max`, the last one smaller. All or
  /// nothing. kResourceExhausted and others as the driver has them, with what was pinned by then.
  /// `context` outlives it.
  static Result<PinnedMemory> create(CudaContext& context,
                                     std::byte* memory,
                                     std::size_t bytes,
                                     std::size_t bytes_max);
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;

 private:
  PinnedMemory(CudaContext& context, std::byte* memory, std::size_t bytes_max)
      : context_(context), memory_(memory), bytes_max_(bytes_max) {}

  CudaContext& context_;
  std::byte* memory_;
  std::size_t bytes_max_;
  std::size_t pieces_ = 0;  ///< Registered, from the first on.
};

}  // namespace heddle::device
