#include "ops/low_rank_tiles.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/low_rank_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void add_low_rank_tiles(device::Stream& stream, const AddLowRankTilesArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  const std::int64_t chunks = div_up(args.rank, kLowRankStep);
  const bool bf16 = args.x.dtype == DType::kBf16;
  std::byte* const inner =
      cuda.scratch(low_rank_tiles_bytes(args.x.shape[0], args.rank, args.x.dtype));
  if (inner == nullptr) {
    return;
  }
  const LowRankParams params{
      .tiles = args.tiles,
      .x = args.x.data,
      .inner = inner,
      .out = args.out.data,
      .x_stride = args.x.stride[0],
      .out_stride = args.out.stride[0],
      .entry = static_cast<std::int32_t>(args.entry),
      .pairs = static_cast<std::int32_t>(args.pairs),
      .columns = static_cast<std::int32_t>(chunks * kLowRankStep),
      .inputs = static_cast<std::int32_t>(args.x.shape[1]),
      .outputs = static_cast<std::int32_t>(args.out.shape[1]),
      .aligned = moves_by(8, args.x.data, DType::kBf16, args.x.stride[0], args.x.shape[1]),
      .out_bf16 = args.out.dtype == DType::kBf16};
  const auto tiles = static_cast<std::uint32_t>(args.count);
  const auto parts = static_cast<std::uint32_t>(args.pairs * chunks);
  cuda.launch(kernel(bf16 ? "heddle_low_rank_shrink_bf16" : "heddle_low_rank_shrink_f32"),
              {.grid = {tiles, parts, 1}, .block = {kLowRankThreads, 1, 1}},
              params);
  const auto blocks = static_cast<std::uint32_t>(div_up(args.out.shape[1], kLowRankOutputs));
  cuda.launch(kernel(bf16 ? "heddle_low_rank_expand_bf16" : "heddle_low_rank_expand_f32"),
              {.grid = {tiles, blocks, 1}, .block = {kLowRankThreads, 1, 1}},
              params);
}

}  // namespace heddle::ops::cuda
