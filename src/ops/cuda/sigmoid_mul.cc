#include "ops/sigmoid_mul.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/sigmoid_mul_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void sigmoid_mul(device::Stream& stream, const SigmoidMulArgs& args) {
  const std::int64_t n = args.rows.shape[1];
  const bool quads = moves_by(4, args.gate.data, args.gate.dtype, n, args.gate.stride[0]) &&
                     moves_by(4, args.rows.data, args.rows.dtype, args.rows.stride[0]);
  const SigmoidMulParams params{.gate = args.gate.data,
                                .rows = args.rows.data,
                                .gate_stride = args.gate.stride[0],
                                .rows_stride = args.rows.stride[0],
                                .n = n,
                                .bf16 = args.rows.dtype == DType::kBf16,
                                .gate_bf16 = args.gate.dtype == DType::kBf16,
                                .quads = quads};
  cuda_stream(stream).launch(
      kernel("heddle_sigmoid_mul"), shape_of_rows(args.rows.shape[0], quads ? n / 4 : n), params);
}

}  // namespace heddle::ops::cuda
