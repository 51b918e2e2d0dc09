#include "device/cuda/pinned_memory.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "device/cuda/cuda_values.h"

namespace heddle::device {

Result<PinnedMemory> PinnedMemory::create(CudaContext& context,
                                          std::byte* memory,
                                          std::size_t bytes,
                                          std::size_t bytes_max) {
  HEDDLE_CHECK(bytes_max > 0);
  context.make_current();
  PinnedMemory pinned(context, memory, bytes_max);
  for (std::size_t done = 0; done < bytes; ++pinned.pieces_) {
    const std::size_t piece = std::min(bytes - done, bytes_max);
    const auto registered = context.check(
        "pin " + whole_mib(bytes) + " of host memory, of which " + whole_mib(done) +
            " were pinned: cuMemHostRegister",
        context.api().cuMemHostRegister_v2(memory + done, piece, kHostPortable | kHostDeviceMap));
    if (!registered) {
      return registered.error();
    }
    done += piece;
  }
  return pinned;
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : context_(other.context_),
      memory_(other.memory_),
      bytes_max_(other.bytes_max_),
      pieces_(std::exchange(other.pieces_, 0)) {}

PinnedMemory::~PinnedMemory() {
  if (pieces_ > 0) {
    context_.make_current();
  }
  while (pieces_ > 0) {
    (void)context_.api().cuMemHostUnregister(memory_ + --pieces_ * bytes_max_);
  }
}

}  // namespace heddle::device
