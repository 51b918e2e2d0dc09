#include "ops/cuda/panels.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/tunables.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/f8.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/linear_args.h"
#include "ops/cuda/panel_type.h"
#include "spec/block_panels.h"

namespace heddle::ops::cuda {
namespace {

/// Kernels of a format, for tiles of 8, of 32 and of kPanelTokens.
using PanelKernels = std::array<const char*, 3>;

/// By PanelType.
constexpr std::array<PanelKernels, 10> kPanelKernels = {
    {{"heddle_panels_q80_8", "heddle_panels_q80_32", "heddle_panels_q80_many"},
     {"heddle_panels_q40_8", "heddle_panels_q40_32", "heddle_panels_q40_many"},
     {"heddle_panels_q41_8", "heddle_panels_q41_32", "heddle_panels_q41_many"},
     {"heddle_panels_q50_8", "heddle_panels_q50_32", "heddle_panels_q50_many"},
     {"heddle_panels_q51_8", "heddle_panels_q51_32", "heddle_panels_q51_many"},
     {"heddle_panels_q4k_8", "heddle_panels_q4k_32", "heddle_panels_q4k_many"},
     {"heddle_panels_q5k_8", "heddle_panels_q5k_32", "heddle_panels_q5k_many"},
     {"heddle_panels_q6k_8", "heddle_panels_q6k_32", "heddle_panels_q6k_many"},
     {"heddle_panels_mxfp4_8", "heddle_panels_mxfp4_32", "heddle_panels_mxfp4_many"},
     {"heddle_panels_f8_8", "heddle_panels_f8_32", "heddle_panels_f8_many"}}};
constexpr PanelKernels kExpertKernels = {
    "heddle_experts_bf16_8", "heddle_experts_bf16_32", "heddle_experts_bf16_many"};

const PanelKernels& kernels_of(DType dtype) {
  return spec::is_blocks(dtype) ? kPanelKernels[static_cast<std::size_t>(panel_type(dtype))]
                                : kExpertKernels;
}

LinearParams panel_params(const LinearArgs& args) {
  return linear_params(args, moves_by(4, args.x.data, DType::kBf16, args.x.stride[0]));
}

/// Rows of a matrix that are unpacked at once: whole panels, or all.
std::int64_t unpacked_rows(const device::CudaStream& stream, const LinearArgs& args) {
  const auto room = static_cast<std::int64_t>(std::min(kUnpackedBytes, stream.scratch_limit()));
  const std::int64_t rows = room / (args.weight.shape[1] * 2);
  return std::min(rows / spec::kPanelRows * spec::kPanelRows, args.weight.shape[0]);
}

/// Makes rows of bfloat16 of a matrix, one behind the other.
void unpack(device::CudaStream& stream, const ConstTensorRef& weight, std::byte* out) {
  constexpr std::int64_t kWarps = kPanelRowsThreads / 32;
  constexpr std::int64_t kPartsOfWarp = 8;
  const std::int64_t inputs = weight.shape[1];
  const PanelRowsParams params{.weight = weight.data,
                               .type = panel_type(weight.dtype),
                               .inputs = static_cast<std::int32_t>(inputs),
                               .outputs = weight.shape[0],
                               .out = out};
  stream.launch(kernel("heddle_panel_rows"),
                {.grid = {static_cast<std::uint32_t>(div_up(weight.shape[0], spec::kPanelRows)),
                          static_cast<std::uint32_t>(div_up(inputs / 32, kWarps * kPartsOfWarp)),
                          1},
                 .block = {kPanelRowsThreads, 1, 1}},
                params);
}

/// Rows [first, first + rows) of the outputs of a product, with their own weights.
LinearArgs slice_of(const LinearArgs& args, std::int64_t first, std::int64_t rows) {
  const auto columns = [&](auto tensor) {
    if (tensor.present()) {
      tensor.data += first * dtype_size(tensor.dtype);
      tensor.shape[static_cast<std::size_t>(tensor.rank - 1)] = rows;
    }
    return tensor;
  };
  LinearArgs slice = args;
  slice.weight.data += first * spec::row_bytes(args.weight.dtype, args.weight.shape[1]);
  slice.weight.shape[0] = rows;
  slice.bias = columns(args.bias);
  slice.residual = columns(args.residual);
  slice.out = columns(args.out);
  return slice;
}

/// A product of many tokens by cuBLASLt, which is some four times as fast as the own kernel and
/// reads four times the bytes: slice after slice of outputs. False, and nothing done,
/// where there is no library, or no room for slices that are worth their launches.
bool multiply_unpacked(device::CudaStream& stream, const LinearArgs& args) {
  constexpr std::int64_t kRowsMin = 256;
  const std::int64_t inputs = args.weight.shape[1];
  const std::int64_t outputs = args.weight.shape[0];
  const std::int64_t rows = unpacked_rows(stream, args);
  Blas& blas = stream.attachment<Blas>();
  if (rows < std::min(kRowsMin, outputs) || !blas.opens(stream)) {
    return false;
  }
  const auto kept = static_cast<std::size_t>(div_up(rows * inputs * 2, 256) * 256);
  for (std::int64_t first = 0; first < outputs; first += rows) {
    const LinearArgs slice = slice_of(args, first, std::min(rows, outputs - first));
    std::byte* const scratch = stream.scratch(kept);
    if (scratch == nullptr) {
      return true;  // The stream has failed.
    }
    LinearArgs plain = slice;
    plain.weight = tensor_2d<const std::byte>(scratch, DType::kBf16, slice.weight.shape[0], inputs);
    unpack(stream, slice.weight, scratch);
    // The library has what is left of the scratch.
    if (!blas.multiply(stream, plain, kept)) {
      multiply_panels(stream, slice, {});
    }
  }
  return true;
}

}  // namespace

std::int64_t panel_tile_tokens(std::int64_t tokens) {
  return tokens <= 8 ? 8 : tokens <= kPanelThinTokens ? kPanelThinTokens : kPanelTokens;
}

void launch_panels(device::CudaStream& stream,
                   const PanelParams& params,
                   DType dtype,
                   std::int64_t tile,
                   std::int64_t tiles) {
  const bool many = tile > kPanelThinTokens;
  const std::int64_t outputs =
      params.linear.gated ? params.linear.outputs / 2 : params.linear.outputs;
  const std::int64_t of_block =
      kPanelOutputs / (params.linear.gated ? 2 : 1) * (many ? std::int64_t{kPanelWarps} : 1);
  stream.launch(kernel(kernels_of(dtype)[tile <= 8 ? 0
                                         : many    ? 2
                                                   : 1]),
                {.grid = {static_cast<std::uint32_t>(div_up(outputs, of_block)),
                          static_cast<std::uint32_t>(tiles),
                          1},
                 .block = {kPanelThreads, 1, 1}},
                params);
}

void multiply_panels(device::CudaStream& stream, const LinearArgs& args, const ThenNorm& then) {
  const std::int64_t tokens = args.x.shape[0];
  HEDDLE_CHECK(then.counter == nullptr || tokens <= kPanelThinTokens);
  PanelParams params{.linear = panel_params(args), .experts = {}};
  params.linear.norm = then;
  const std::int64_t tile = panel_tile_tokens(tokens);
  launch_panels(stream, params, args.weight.dtype, tile, div_up(tokens, tile));
}

void linear_panels(device::CudaStream& stream, const LinearArgs& args) {
  const bool many = args.x.shape[0] > unpacked_tokens();
  const bool both = many && args.weight.dtype == DType::kF8Both;
  if (!(both && multiply_f8(stream, args)) && !(many && multiply_unpacked(stream, args))) {
    multiply_panels(stream, args, {});
  }
}

bool silu_panels(device::CudaStream& stream, const LinearSiluArgs& args) {
  const LinearArgs& product = args.linear;
  const std::int64_t tokens = product.x.shape[0];
  // Gates and ups of a block are whole panels.
  if (tokens > unpacked_tokens() || product.weight.shape[0] / 2 % spec::kPanelRows != 0) {
    return false;
  }
  PanelParams params{.linear = panel_params(product), .experts = {}};
  params.linear.out = args.out.data;
  params.linear.out_stride = args.out.stride[0];
  params.linear.out_bf16 = args.out.dtype == DType::kBf16;
  params.linear.gated = true;
  const std::int64_t tile = panel_tile_tokens(tokens);
  launch_panels(stream, params, product.weight.dtype, tile, div_up(tokens, tile));
  return true;
}

}  // namespace heddle::ops::cuda
