#include "ops/rescale.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/rescale_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void rescale(device::Stream& stream, const RescaleArgs& args) {
  HEDDLE_CHECK(!args.by.present());  // spec::cpu_only()
  const std::int64_t columns = args.x.shape[1];
  const bool quads = moves_by(4, args.x.data, DType::kF32, columns, args.x.stride[0]) &&
                     moves_by(4, args.out.data, args.out.dtype, args.out.stride[0]);
  const RescaleParams params{.x = args.x.as<float>(),
                             .out = args.out.data,
                             .x_stride = args.x.stride[0],
                             .out_stride = args.out.stride[0],
                             .columns = columns,
                             .factor = args.factor,
                             .cap = args.cap,
                             .bf16 = args.out.dtype == DType::kBf16,
                             .quads = quads};
  cuda_stream(stream).launch(kernel("heddle_rescale"),
                             shape_of_rows(args.x.shape[0], quads ? columns / 4 : columns),
                             params);
}

}  // namespace heddle::ops::cuda
