#include "ops/exchange.h"

#include <span>

#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {
namespace {

std::span<float> elements(const TensorRef& matrix) {
  return {matrix.as<float>(), static_cast<std::size_t>(matrix.shape[0] * matrix.shape[1])};
}

}  // namespace

void all_reduce(device::Stream& stream, const AllReduceArgs& args) {
  cpu_stream(stream).enqueue(
      [args](device::ThreadPool&) { return args.group->all_reduce(elements(args.data)); });
}

void all_gather(device::Stream& stream, const AllGatherArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool&) {
    return args.group->all_gather(elements(args.data), *args.ends);
  });
}

}  // namespace heddle::ops::cpu
