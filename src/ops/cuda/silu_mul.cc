#include "ops/silu_mul.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/silu_mul_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void silu_mul(device::Stream& stream, const SiluMulArgs& args) {
  const std::int64_t n = args.out.shape[1];
  const bool quads =
      moves_by(4, args.gate_up.data, args.gate_up.dtype, n, args.gate_up.stride[0]) &&
      moves_by(4, args.out.data, args.out.dtype, args.out.stride[0]);
  const SiluMulParams params{.gate_up = args.gate_up.data,
                             .out = args.out.data,
                             .gate_up_stride = args.gate_up.stride[0],
                             .out_stride = args.out.stride[0],
                             .n = n,
                             .limit = args.limit,
                             .gain = args.gain,
                             .bf16 = args.out.dtype == DType::kBf16,
                             .from_bf16 = args.gate_up.dtype == DType::kBf16,
                             .quads = quads};
  cuda_stream(stream).launch(
      kernel("heddle_silu_mul"), shape_of_rows(args.out.shape[0], quads ? n / 4 : n), params);
}

}  // namespace heddle::ops::cuda
