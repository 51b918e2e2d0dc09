#include "ops/gelu.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

void gelu(device::Stream& stream, const GeluArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    pool.parallel_for(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t token = begin; token < end; ++token) {
        simd_kernels().gelu(
            {.x = args.x.as<float>() + token * args.x.stride[0],
             .out = args.out.data + token * args.out.stride[0] * dtype_size(args.out.dtype),
             .bf16 = args.out.dtype == DType::kBf16,
             .n = args.out.shape[1]});
      }
    });
  });
}

}  // namespace heddle::ops::cpu
