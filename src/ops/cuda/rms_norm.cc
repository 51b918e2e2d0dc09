#include "ops/rms_norm.h"

#include "base/tunables.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/rms_norm_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {
namespace {

/// Of a block in which each warp does a vector.
constexpr std::int64_t kShortThreads = 128;

}  // namespace

void rms_norm(device::Stream& stream, const RmsNormArgs& args) {
  const bool of_heads = args.x.rank == 3;
  const std::int64_t heads = of_heads ? args.x.shape[1] : 1;
  const std::int64_t columns = args.x.shape[of_heads ? 2 : 1];
  const std::int64_t vectors = args.x.shape[0] * heads;
  RmsNormParams params{.x = args.x.as<float>(),
                       .weight = args.weight.as<float>(),
                       .out = args.out.data,
                       .x_token_stride = args.x.stride[0],
                       .x_head_stride = of_heads ? args.x.stride[1] : 0,
                       .out_token_stride = args.out.stride[0],
                       .out_head_stride = of_heads ? args.out.stride[1] : 0,
                       .vectors = vectors,
                       .heads = static_cast<std::int32_t>(heads),
                       .columns = static_cast<std::int32_t>(columns),
                       .bf16 = args.out.dtype == DType::kBf16,
                       .quads = 0,
                       .eps = args.eps};
  params.quads =
      moves_by(4, args.x.data, DType::kF32, columns, params.x_token_stride, params.x_head_stride) &&
      moves_by(4, args.weight.data, DType::kF32) &&
      moves_by(4, args.out.data, args.out.dtype, params.out_token_stride, params.out_head_stride);
  // Short vectors are done by a warp each, longer ones by a block.
  if (columns <= tuned(Tuned::kNormShortColumns)) {
    const std::int64_t blocks = div_up(vectors, kShortThreads / 32);
    cuda_stream(stream).launch(
        kernel("heddle_rms_norm_short"),
        {.grid = {static_cast<std::uint32_t>(blocks), 1, 1}, .block = {kShortThreads, 1, 1}},
        params);
    return;
  }
  const std::int64_t items = params.quads != 0 ? columns / 4 : columns;
  const std::int64_t threads = std::min(div_up(items, 32) * 32, tuned(Tuned::kNormThreads));
  cuda_stream(stream).launch(kernel("heddle_rms_norm"),
                             {.grid = {static_cast<std::uint32_t>(vectors), 1, 1},
                              .block = {static_cast<std::uint32_t>(threads), 1, 1}},
                             params);
}

}  // namespace heddle::ops::cuda
