#include "ops/silu_mul.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

void silu_mul_here(const SiluMulArgs& args, device::ThreadPool& pool) {
  const std::int64_t n = args.out.shape[1];
  pool.parallel_for(args.out.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      const float* gate = args.gate_up.as<float>() + token * args.gate_up.stride[0];
      simd_kernels().silu_mul(
          {.gate = gate,
           .up = gate + n,
           .out = args.out.data + token * args.out.stride[0] * dtype_size(args.out.dtype),
           .bf16 = args.out.dtype == DType::kBf16,
           .n = n,
           .limit = args.limit,
           .gain = args.gain});
    }
  });
}

void silu_mul(device::Stream& stream, const SiluMulArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) { silu_mul_here(args, pool); });
}

}  // namespace heddle::ops::cpu
