#include "ops/add_norm.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/add_norm_params.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/norm.h"

namespace heddle::ops::cuda {

void add_norm(device::Stream& stream, const AddNormArgs& args) {
  const std::int64_t columns = args.x.shape[1];
  const std::int64_t next_stride = args.next.present() ? args.next.stride[0] : 0;
  const bool quads =
      moves_by(4, args.x.data, DType::kF32, columns, args.x.stride[0]) &&
      moves_by(4, args.sum.data, DType::kF32, args.sum.stride[0]) &&
      moves_by(4, args.weight.data, DType::kF32) &&
      moves_by(4, args.next_weight.data, DType::kF32) &&
      (!args.next.present() || moves_by(4, args.next.data, args.next.dtype, next_stride));
  const AddNormParams params{.x = args.x.as<float>(),
                             .weight = args.weight.as<float>(),
                             .sum = args.sum.as<float>(),
                             .next_weight = args.next_weight.as<float>(),
                             .next = args.next.data,
                             .x_stride = args.x.stride[0],
                             .sum_stride = args.sum.stride[0],
                             .next_stride = next_stride,
                             .columns = static_cast<std::int32_t>(columns),
                             .next_bf16 = args.next.dtype == DType::kBf16,
                             .quads = quads,
                             .eps = args.eps,
                             .factor = args.factor};
  RmsNormParams row{};
  row.columns = params.columns;
  row.quads = params.quads;
  const auto threads = static_cast<std::uint32_t>(norm_threads(row));
  cuda_stream(stream).launch(
      kernel("heddle_add_norm"),
      {.grid = {static_cast<std::uint32_t>(args.x.shape[0]), 1, 1}, .block = {threads, 1, 1}},
      params);
}

}  // namespace heddle::ops::cuda
