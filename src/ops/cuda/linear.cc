#include "ops/linear.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/check.h"
#include "base/tunables.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/counters.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/linear_params.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear_args.h"
#include "ops/cuda/norm.h"
#include "ops/cuda/panels.h"
#include "ops/cuda/products.h"
#include "ops/cuda/skinny.h"
#include "ops/fused.h"

namespace heddle::ops::cuda {
namespace {

/// A thin kernel of tensor cores, for as many tokens as it has room for.
struct Thin {
  std::int64_t tokens = 0;
  const char* bf16 = nullptr;
  const char* int8 = nullptr;
};
constexpr std::array<Thin, 3> kThin = {
    {{8, "heddle_linear_thin_bf16_8", "heddle_linear_thin_int8_8"},
     {16, "heddle_linear_thin_bf16_16", "heddle_linear_thin_int8_16"},
     {32, "heddle_linear_thin_bf16_32", "heddle_linear_thin_int8_32"}}};

std::uint32_t blocks(std::int64_t items, std::int64_t of_block) {
  return static_cast<std::uint32_t>(div_up(items, of_block));
}

bool aligned(const ConstTensorRef& rows) {
  return moves_by(16 / dtype_size(rows.dtype), rows.data, rows.dtype, rows.stride[0]);
}

LinearParams params_of(const LinearArgs& args) {
  return linear_params(
      args, aligned(args.weight) && (args.weight.dtype == DType::kI8 || aligned(args.x)));
}

void launch_f32(device::CudaStream& stream, const LinearParams& params) {
  if (params.tokens <= kThinF32Tokens) {
    stream.launch(
        kernel("heddle_linear_thin_f32"),
        {.grid = {blocks(params.outputs, kThinF32Outputs), 1, 1}, .block = {kThinF32Threads, 1, 1}},
        params);
    return;
  }
  stream.launch(
      kernel("heddle_linear_tile_f32"),
      {.grid = {blocks(params.outputs, kTileF32Outputs), blocks(params.tokens, kTileF32Tokens), 1},
       .block = {kTileThreads, 1, 1}},
      params);
}

/// Of up to how many tokens a thin kernel of tensor cores does the product, whatever else there is.
std::int64_t thin_tokens(DType weight) {
  switch (weight) {
    case DType::kBf16:
      return tuned(Tuned::kThinBeforeBlas);
    case DType::kI8:
      return kThin.back().tokens;
    default:
      return 0;
  }
}

/// On tensor cores: bfloat16, or int8 with tokens that are split.
void launch_mma(device::CudaStream& stream, const LinearParams& params, bool int8) {
  // Of gates and ups a block has half as many of each.
  const std::int64_t halves = params.gated ? 2 : 1;
  for (const Thin& thin : kThin) {
    if (params.tokens <= thin.tokens) {
      const std::uint32_t grid = blocks(params.outputs / halves, kThinOutputs / halves);
      stream.launch(kernel(int8 ? thin.int8 : thin.bf16),
                    {.grid = {grid, 1, 1}, .block = {kThinThreads, 1, 1}},
                    params);
      return;
    }
  }
  stream.launch(kernel(int8 ? "heddle_linear_tile_int8" : "heddle_linear_tile_bf16"),
                {.grid = {blocks(params.outputs / halves, kTileOutputs / halves),
                          blocks(params.tokens, kTileTokens),
                          1},
                 .block = {kTileThreads, 1, 1}},
                params);
}

/// Splits the tokens into scratch memory, and multiplies.
void linear_int8(device::CudaStream& stream, LinearParams params) {
  HEDDLE_CHECK(params.inputs <= kInt8InputsMax);
  const std::int64_t tokens = params.tokens;
  const std::int64_t pitch = div_up(params.inputs, kInt8Pad) * kInt8Pad;
  std::byte* const scratch = stream.scratch(
      static_cast<std::size_t>(tokens * (2 * pitch + static_cast<std::int64_t>(sizeof(int)))));
  if (scratch == nullptr) {
    return;
  }
  const SplitTokensParams split{
      .x = params.x,
      .x_stride = params.x_stride,
      .high = scratch,
      .low = scratch + tokens * pitch,
      .pitch = pitch,
      .exponent = reinterpret_cast<std::int32_t*>(scratch + 2 * tokens * pitch),
      .inputs = params.inputs};
  stream.launch(
      kernel("heddle_split_tokens"),
      {.grid = {static_cast<std::uint32_t>(tokens), 1, 1}, .block = {kSplitThreads, 1, 1}},
      split);
  params.x = split.high;
  params.x_low = split.low;
  params.x_stride = pitch;
  params.exponent = split.exponent;
  launch_mma(stream, params, true);
}

/// Of bfloat16, as such: by a skinny kernel where that is for so many tokens.
void launch_bf16(device::CudaStream& stream, const LinearArgs& args, const LinearParams& params) {
  const bool thin = params.tokens <= std::max(kThin[0].tokens, thin_tokens(DType::kBf16));
  if (thin || !skinny_takes(args) || !launch_skinny(stream, params)) {
    launch_mma(stream, params, false);
  }
}

void launch_own(device::CudaStream& stream, const LinearArgs& args, const LinearParams& params) {
  if (args.weight.dtype == DType::kI8) {
    linear_int8(stream, params);
  } else {
    launch_bf16(stream, args, params);
  }
}

/// Whether our kernels take a product of plain weights from cuBLASLt: of a few tokens, as the
/// weights are read once all the same, and of a batch where a survey found that faster.
bool takes_from_blas(device::CudaStream& stream, const LinearArgs& args) {
  const std::int64_t tokens = args.x.shape[0];
  return tokens <= tuned(Tuned::kThinBeforeBlas) ||
         (skinny_takes(args) &&
          (tokens <= tuned(Tuned::kSkinnyBeforeBlas) ||
           stream.attachment<Blas>().own_is_faster(stream, args).value_or(false)));
}

}  // namespace

void linear(device::Stream& stream, const LinearArgs& args) {
  device::CudaStream& cuda = cuda_stream(stream);
  if (spec::is_blocks(args.weight.dtype)) {
    linear_panels(cuda, args);
    return;
  }
  if (args.weight.dtype == DType::kI8) {
    linear_int8(cuda, params_of(args));
    return;
  }
  if (!takes_from_blas(cuda, args) && cuda.attachment<Blas>().multiply(cuda, args)) {
    return;
  }
  if (args.weight.dtype == DType::kBf16) {
    launch_plain(cuda, args);
  } else {
    launch_f32(cuda, params_of(args));
  }
}

bool linear_norm(device::Stream& stream, const LinearNormArgs& args) {
  const LinearArgs& product = args.linear;
  const std::int64_t tokens = product.x.shape[0];
  const bool panels = spec::is_blocks(product.weight.dtype);
  const std::int64_t thin = panels ? kPanelThinTokens : thin_tokens(product.weight.dtype);
  if (tokens > std::min(tuned(Tuned::kNormTokens), thin) || product.out.dtype != DType::kF32 ||
      args.norm.x.rank != 2) {
    return false;
  }
  device::CudaStream& cuda = cuda_stream(stream);
  std::int32_t* const counter = cuda.attachment<Counters>().get(cuda, 1);
  if (counter == nullptr) {
    return false;
  }
  const RmsNormParams norm = norm_params(args.norm);
  const ThenNorm then{.counter = counter, .threads = norm_threads(norm), .params = norm};
  if (panels) {
    multiply_panels(cuda, product, then);
    return true;
  }
  LinearParams params = params_of(product);
  params.norm = then;
  launch_own(cuda, product, params);
  return true;
}

bool linear_silu(device::Stream& stream, const LinearSiluArgs& args) {
  const LinearArgs& product = args.linear;
  device::CudaStream& cuda = cuda_stream(stream);
  if (spec::is_blocks(product.weight.dtype)) {
    return silu_panels(cuda, args);
  }
  if (product.weight.dtype == DType::kF32) {
    return false;
  }
  // The library may multiply so much faster that another pass for the gates costs less.
  const std::int64_t from_blas = std::max(
      thin_tokens(DType::kBf16), skinny_takes(product) ? tuned(Tuned::kSkinnyBeforeBlas) : 0);
  if (product.weight.dtype == DType::kBf16 && product.x.shape[0] > from_blas) {
    auto& blas = cuda.attachment<Blas>();
    if (blas.opens(cuda) && !blas.prefers_gated(cuda, product)) {
      return false;
    }
  }
  launch_gated(cuda, args);
  return true;
}

void launch_plain(device::CudaStream& stream, const LinearArgs& args) {
  launch_bf16(stream, args, params_of(args));
}

void launch_gated(device::CudaStream& stream, const LinearSiluArgs& args) {
  const LinearArgs& product = args.linear;
  LinearParams params = params_of(product);
  params.out = args.out.data;
  params.out_stride = args.out.stride[0];
  params.out_bf16 = args.out.dtype == DType::kBf16;
  params.gated = true;
  launch_own(stream, product, params);
}

}  // namespace heddle::ops::cuda
