#include "ops/cuda/skinny.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/div_up.h"
#include "base/tunables.h"
#include "device/cuda/cuda_device.h"
#include "ops/cuda/counters.h"
#include "ops/cuda/kernels/skinny_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {
namespace {

/// Steps that a block has at least before a multiprocessor is to have another one: each block
/// leaves sums of tiles behind, which go through the caches twice.
constexpr std::int64_t kStepsMin = 16;
/// What the driver keeps of a multiprocessor's shared memory for each block, by CUDA's guide.
constexpr std::int64_t kSharedKept = 1024;

struct Skinny {
  std::int64_t tokens = 0;
  const char* name = nullptr;
};
constexpr std::array<Skinny, 3> kSkinny = {{{16, "heddle_linear_skinny_16"},
                                            {32, "heddle_linear_skinny_32"},
                                            {kSkinnyTokensMax, "heddle_linear_skinny_64"}}};

/// Sums of a tile that a block leaves [bytes].
std::size_t tile_bytes(const Skinny& which) {
  return kSkinnyOutputs * static_cast<std::size_t>(which.tokens) * sizeof(float);
}

/// Blocks for `steps` of all tiles; 0: there is no room.
std::int64_t blocks_for(const device::CudaStream& stream, const Skinny& which, std::int64_t steps) {
  const device::CudaContext& context = stream.device().context();
  const std::int64_t multiprocessors = context.attribute(device::kAttributeMultiprocessorCount);
  const std::int64_t shared = context.attribute(device::kAttributeSharedBytesMax);
  const std::int64_t fit =
      (shared + kSharedKept) / (skinny_shared_bytes(which.tokens) + kSharedKept);
  const std::int64_t most = std::min(tuned(Tuned::kSkinnyBlocks), fit);
  const std::int64_t each = std::min(std::max(steps / (kStepsMin * multiprocessors), 1L), most);
  const auto room = static_cast<std::int64_t>(
      std::min<std::size_t>(stream.scratch_limit() / (2 * tile_bytes(which)), INT32_MAX));
  return std::min({multiprocessors * each, steps, room});
}

}  // namespace

bool skinny_takes(const LinearArgs& args) {
  const auto aligned = [](const ConstTensorRef& rows) {
    return moves_by(16 / dtype_size(rows.dtype), rows.data, rows.dtype, rows.stride[0]);
  };
  return args.weight.dtype == DType::kBf16 && args.x.shape[0] <= kSkinnyTokensMax &&
         args.weight.shape[1] > 0 && aligned(args.weight) && aligned(args.x);
}

bool launch_skinny(device::CudaStream& stream, const LinearParams& params) {
  const Skinny& which = *std::ranges::find_if(
      kSkinny, [&](const Skinny& each) { return params.tokens <= each.tokens; });
  const std::int64_t halves = params.gated ? 2 : 1;
  const std::int64_t tiles = div_up(params.outputs / halves, kSkinnyOutputs / halves);
  const std::int64_t steps = div_up(params.inputs * 2, kSkinnyStepBytes);
  const std::int64_t blocks = blocks_for(stream, which, tiles * steps);
  std::int32_t* const counters =
      blocks < 1 ? nullptr : stream.attachment<Counters>().get(stream, tiles);
  std::byte* const scratch =
      counters == nullptr
          ? nullptr
          : stream.scratch(static_cast<std::size_t>(blocks) * 2 * tile_bytes(which));
  if (scratch == nullptr) {
    return false;
  }
  stream.launch(kernel(which.name),
                {.grid = {static_cast<std::uint32_t>(blocks), 1, 1},
                 .block = {kSkinnyThreads, 1, 1},
                 .shared_bytes = skinny_shared_bytes(which.tokens)},
                SkinnyParams{.linear = params,
                             .partial = reinterpret_cast<float*>(scratch),
                             .counters = counters,
                             .steps = static_cast<std::int32_t>(steps),
                             .tiles = static_cast<std::int32_t>(tiles)});
  return true;
}

}  // namespace heddle::ops::cuda
