#include "ops/rms_norm.h"

#include "base/tunables.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/norm.h"

namespace heddle::ops::cuda {
namespace {

/// Of a block in which each warp does a vector.
constexpr std::int64_t kShortThreads = 128;

}  // namespace

RmsNormParams norm_params(const RmsNormArgs& args) {
  HEDDLE_CHECK(args.weight.present());  // spec::cpu_only()
  const bool of_heads = args.x.rank == 3;
  const std::int64_t heads = of_heads ? args.x.shape[1] : 1;
  const std::int64_t columns = args.x.shape[of_heads ? 2 : 1];
  RmsNormParams params{.x = args.x.as<float>(),
                       .weight = args.weight.as<float>(),
                       .out = args.out.data,
                       .x_token_stride = args.x.stride[0],
                       .x_head_stride = of_heads ? args.x.stride[1] : 0,
                       .out_token_stride = args.out.stride[0],
                       .out_head_stride = of_heads ? args.out.stride[1] : 0,
                       .vectors = args.x.shape[0] * heads,
                       .heads = static_cast<std::int32_t>(heads),
                       .columns = static_cast<std::int32_t>(columns),
                       .bf16 = args.out.dtype == DType::kBf16,
                       .quads = 0,
                       .eps = args.eps};
  params.quads =
      moves_by(4, args.x.data, DType::kF32, columns, params.x_token_stride, params.x_head_stride) &&
      moves_by(4, args.weight.data, DType::kF32) &&
      moves_by(4, args.out.data, args.out.dtype, params.out_token_stride, params.out_head_stride);
  return params;
}

std::int32_t norm_threads(const RmsNormParams& params) {
  constexpr std::int64_t kWarp = 32;
  if (params.columns <= tuned(Tuned::kNormShortColumns)) {
    return static_cast<std::int32_t>(kWarp);
  }
  const std::int32_t items = params.quads != 0 ? params.columns / 4 : params.columns;
  return static_cast<std::int32_t>(
      std::min(div_up(items, kWarp) * kWarp, tuned(Tuned::kNormThreads)));
}

void rms_norm(device::Stream& stream, const RmsNormArgs& args) {
  const RmsNormParams params = norm_params(args);
  if (params.columns <= tuned(Tuned::kNormShortColumns)) {
    const std::int64_t blocks = div_up(params.vectors, kShortThreads / 32);
    cuda_stream(stream).launch(
        kernel("heddle_rms_norm_short"),
        {.grid = {static_cast<std::uint32_t>(blocks), 1, 1}, .block = {kShortThreads, 1, 1}},
        params);
    return;
  }
  cuda_stream(stream).launch(kernel("heddle_rms_norm"),
                             {.grid = {static_cast<std::uint32_t>(params.vectors), 1, 1},
                              .block = {static_cast<std::uint32_t>(norm_threads(params)), 1, 1}},
                             params);
}

}  // namespace heddle::ops::cuda
