#include "ops/rescale.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

void rescale(device::Stream& stream, const RescaleArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const float factor = args.factor * (args.by.present() ? args.by.as<float>()[0] : 1.0F);
    pool.parallel_for(args.x.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t token = begin; token < end; ++token) {
        simd_kernels().rescale(
            {.x = args.x.as<float>() + token * args.x.stride[0],
             .out = args.out.data + token * args.out.stride[0] * dtype_size(args.out.dtype),
             .bf16 = args.out.dtype == DType::kBf16,
             .n = args.x.shape[1],
             .factor = factor,
             .cap = args.cap});
      }
    });
  });
}

}  // namespace heddle::ops::cpu
