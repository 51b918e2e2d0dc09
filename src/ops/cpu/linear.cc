#include "ops/linear.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {
namespace {

// Outputs that stay with one thread: a whole number of register tiles, and of cache lines of out.
constexpr std::int64_t kGrain = 16;

LinearBlock block_of(const LinearArgs& args, std::int64_t begin, std::int64_t end) {
  const auto row_bytes =
      args.weight.shape[1] * static_cast<std::int64_t>(spec::dtype_bytes(args.weight.dtype));
  const auto from = [begin](const ConstTensorRef& tensor) {
    return tensor.present() ? tensor.as<float>() + begin : nullptr;
  };
  return {.x = args.x.as<float>(),
          .x_stride = args.x.stride[0],
          .weight = args.weight.data + begin * row_bytes,
          .bias = from(args.bias),
          .residual = from(args.residual),
          .residual_stride = args.residual.stride[0],
          .out = args.out.as<float>() + begin,
          .out_stride = args.out.stride[0],
          .tokens = args.x.shape[0],
          .outputs = end - begin,
          .inputs = args.weight.shape[1]};
}

}  // namespace

void linear(device::Stream& stream, const LinearArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const auto kernel =
        args.weight.dtype == DType::kBf16 ? simd_kernels().linear_bf16 : simd_kernels().linear_f32;
    pool.parallel_for(args.weight.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end, int) {
      kernel(block_of(args, begin, end));
    });
  });
}

}  // namespace heddle::ops::cpu
