#include "ops/layer_norm.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

void layer_norm(device::Stream& stream, const LayerNormArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    pool.parallel_for(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t token = begin; token < end; ++token) {
        simd_kernels().layer_norm(
            {.x = args.x.as<float>() + token * args.x.stride[0],
             .weight = args.weight.as<float>(),
             .bias = args.bias.as<float>(),
             .out = args.out.as<float>() + token * args.out.stride[0],
             .copy = args.copy.data + token * args.copy.stride[0] * dtype_size(args.copy.dtype),
             .bf16 = args.copy.dtype == DType::kBf16,
             .columns = args.out.shape[1],
             .eps = args.eps});
      }
    });
  });
}

}  // namespace heddle::ops::cpu
