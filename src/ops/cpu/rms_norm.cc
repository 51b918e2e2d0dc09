#include "ops/rms_norm.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {

void rms_norm(device::Stream& stream, const RmsNormArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const auto last = static_cast<std::size_t>(args.x.rank - 1);
    const std::int64_t heads = args.x.rank == 3 ? args.x.shape[1] : 1;
    const std::int64_t head_stride_in = args.x.rank == 3 ? args.x.stride[1] : 0;
    const std::int64_t head_stride_out = args.x.rank == 3 ? args.out.stride[1] : 0;
    pool.parallel_for(args.x.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin * heads; i < end * heads; ++i) {
        const std::int64_t token = i / heads;
        const std::int64_t head = i % heads;
        simd_kernels().rms_norm(
            {.x = args.x.as<float>() + token * args.x.stride[0] + head * head_stride_in,
             .weight = args.weight.present() ? args.weight.as<float>() : nullptr,
             .out = args.out.data + (token * args.out.stride[0] + head * head_stride_out) *
                                        dtype_size(args.out.dtype),
             .bf16 = args.out.dtype == DType::kBf16,
             .columns = args.x.shape[last],
             .eps = args.eps});
      }
    });
  });
}

}  // namespace heddle::ops::cpu
