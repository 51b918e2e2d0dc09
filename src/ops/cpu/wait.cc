#include "ops/wait.h"

#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {

void wait(device::Stream& stream, const WaitArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool&) -> Result<void> {
    std::uint64_t now = args.watermark->load(std::memory_order_acquire);
    while (now < args.value) {
      args.watermark->wait(now, std::memory_order_acquire);
      now = args.watermark->load(std::memory_order_acquire);
    }
    if (now == kAbandoned) {
      return Error{Code::kCancelled, "the awaited bytes will never come"};
    }
    return {};
  });
}

}  // namespace heddle::ops::cpu
