#include "ops/add_norm.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {
namespace {

/// What goes into the product behind, of a token's sum.
void hand_on(const AddNormArgs& args, std::int64_t token, const float* sum) {
  if (!args.next.present()) {
    return;
  }
  const std::int64_t columns = args.x.shape[1];
  const bool bf16 = args.next.dtype == DType::kBf16;
  std::byte* const out = args.next.data + token * args.next.stride[0] * dtype_size(args.next.dtype);
  if (args.next_weight.present()) {
    simd_kernels().rms_norm({.x = sum,
                             .weight = args.next_weight.as<float>(),
                             .out = out,
                             .bf16 = bf16,
                             .columns = columns,
                             .eps = args.eps});
  } else {
    simd_kernels().rescale({.x = sum, .out = out, .bf16 = bf16, .n = columns});
  }
}

}  // namespace

void add_norm(device::Stream& stream, const AddNormArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const std::int64_t columns = args.x.shape[1];
    pool.parallel_for(args.x.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t token = begin; token < end; ++token) {
        float* const x = args.x.as<float>() + token * args.x.stride[0];
        float* const sum = args.sum.as<float>() + token * args.sum.stride[0];
        if (args.weight.present()) {
          simd_kernels().rms_norm({.x = x,
                                   .weight = args.weight.as<float>(),
                                   .out = reinterpret_cast<std::byte*>(x),
                                   .columns = columns,
                                   .eps = args.eps});
        }
        for (std::int64_t i = 0; i < columns; ++i) {
          const float added = args.factor * x[i];
          sum[i] += added;
        }
        hand_on(args, token, sum);
      }
    });
  });
}

}  // namespace heddle::ops::cpu
