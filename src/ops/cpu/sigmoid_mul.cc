#include "ops/sigmoid_mul.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

void sigmoid_mul(device::Stream& stream, const SigmoidMulArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    pool.parallel_for(args.rows.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t token = begin; token < end; ++token) {
        simd_kernels().sigmoid_mul(
            {.gate = args.gate.as<float>() + token * args.gate.stride[0],
             .rows = args.rows.data + token * args.rows.stride[0] * dtype_size(args.rows.dtype),
             .bf16 = args.rows.dtype == DType::kBf16,
             .n = args.rows.shape[1]});
      }
    });
  });
}

}  // namespace heddle::ops::cpu
