#include "ops/exchange.h"

#include <span>

#include "ops/cuda/kernels.h"
#include "ops/cuda/staging.h"

// Exchanges go through memory of the host, where all ranks meet whatever their devices are. The
// thread that enqueues waits for the device, and then for the other ranks: right everywhere, and
// slow. Ranks on GPUs of one host could add up over their links instead; nobody has written that.
namespace heddle::ops::cuda {
namespace {

/// Has `exchange` change a copy of `data` that host code can use, and brings it back.
template <class Exchange>
void on_host(device::CudaStream& stream, const TensorRef& data, const Exchange& exchange) {
  const auto count = static_cast<std::size_t>(data.shape[0] * data.shape[1]);
  const std::size_t bytes = count * sizeof(float);
  std::byte* const staged = stream.attachment<Staging>().memory(stream, bytes);
  if (staged == nullptr) {
    return;
  }
  stream.copy(staged, data.data, bytes);
  Result<void> done = stream.synchronize();
  if (done) {
    done = exchange(std::span<float>(reinterpret_cast<float*>(staged), count));
  }
  if (!done) {
    stream.fail(done.error());
    return;
  }
  stream.copy(data.data, staged, bytes);
}

}  // namespace

void all_reduce(device::Stream& stream, const AllReduceArgs& args) {
  on_host(cuda_stream(stream), args.data, [&](std::span<float> data) {
    return args.group->all_reduce(data);
  });
}

void all_gather(device::Stream& stream, const AllGatherArgs& args) {
  on_host(cuda_stream(stream), args.data, [&](std::span<float> data) {
    return args.group->all_gather(data, *args.ends);
  });
}

}  // namespace heddle::ops::cuda
