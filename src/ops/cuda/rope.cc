#include "ops/rope.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/rope_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void rope(device::Stream& stream, const RopeArgs& args) {
  const std::int64_t heads = args.heads.shape[1];
  const std::int64_t half = args.heads.shape[2] / 2;
  const RopeParams params{.heads = args.heads.as<float>(),
                          .cos_sin = args.cos_sin.as<float>(),
                          .token_stride = args.heads.stride[0],
                          .head_stride = args.heads.stride[1],
                          .cos_sin_stride = args.cos_sin.stride[0],
                          .head_count = static_cast<std::int32_t>(heads),
                          .half = static_cast<std::int32_t>(half)};
  cuda_stream(stream).launch(
      kernel("heddle_rope"), shape_of_rows(args.heads.shape[0], heads * half), params);
}

}  // namespace heddle::ops::cuda
