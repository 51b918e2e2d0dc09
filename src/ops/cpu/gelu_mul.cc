#include "ops/gelu_mul.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

void gelu_mul_here(const GeluMulArgs& args, device::ThreadPool& pool) {
  const std::int64_t n = args.out.shape[1];
  pool.parallel_for(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      const float* gate = args.gate_up.as<float>() + token * args.gate_up.stride[0];
      simd_kernels().gelu_mul(
          {.gate = gate,
           .up = gate + n,
           .out = args.out.data + token * args.out.stride[0] * dtype_size(args.out.dtype),
           .bf16 = args.out.dtype == DType::kBf16,
           .n = n});
    }
  });
}

void gelu_mul(device::Stream& stream, const GeluMulArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) { gelu_mul_here(args, pool); });
}

}  // namespace heddle::ops::cpu
