#include "ops/wait.h"

#include "ops/cuda/kernels.h"

namespace heddle::ops::cuda {

// The host waits where a CPU's stream would: what was enqueued before runs meanwhile. A kernel that
// waited would hold multiprocessors, and what sets the mark may need the device to get there.
void wait(device::Stream& stream, const WaitArgs& args) {
  std::uint64_t now = args.watermark->load(std::memory_order_acquire);
  while (now < args.value) {
    args.watermark->wait(now, std::memory_order_acquire);
    now = args.watermark->load(std::memory_order_acquire);
  }
  if (now == kAbandoned) {
    cuda_stream(stream).fail({Code::kCancelled, "the awaited bytes will never come"});
  }
}

}  // namespace heddle::ops::cuda
