#include "ops/cuda/f8.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "ops/cuda/blas.h"
#include "ops/cuda/kernels/f8_params.h"
#include "ops/cuda/launch.h"
#include "spec/block_panels.h"

namespace heddle::ops::cuda {
namespace {

constexpr std::int64_t kRows = spec::kPanelRows;
constexpr std::int64_t kAlignment = 256;

std::size_t rounded_up(std::int64_t bytes) {
  return static_cast<std::size_t>(div_up(bytes, kAlignment) * kAlignment);
}

/// Whether it was said what becomes of many tokens.
struct Told {
  bool done = false;
};

void tell(device::CudaStream& stream, bool takes) {
  if (!std::exchange(stream.attachment<Told>().done, true)) {
    log::info(takes ? "products of many tokens are in FP8 on both sides"
                    : "cuBLASLt has no products of FP8 here: inputs are taken as they are");
  }
}

/// Where in the scratch memory what is, and how many outputs a slice has.
struct Layout {
  std::int64_t rows = 0;  ///< Of a slice: whole panels. 0: there is no room.
  std::size_t token_scale = 0;
  std::size_t weight = 0;
  std::size_t row_scale = 0;
  std::size_t product = 0;
  std::size_t end = 0;
};

Layout lay_out(const device::CudaStream& stream, const LinearArgs& args) {
  constexpr std::int64_t kRowsMin = 256;
  constexpr std::size_t kPadding = std::size_t{4} * kAlignment;
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t inputs = args.weight.shape[1];
  const std::int64_t outputs = args.weight.shape[0];
  Layout layout{.token_scale = rounded_up(tokens * inputs)};
  layout.weight = layout.token_scale + rounded_up(tokens * 4);
  const std::size_t limit = stream.scratch_limit();
  if (limit < layout.weight + kPadding) {
    return layout;
  }
  const std::size_t room = std::min(kUnpackedBytes, limit - layout.weight) - kPadding;
  const std::int64_t most =
      static_cast<std::int64_t>(room) / (inputs + 4 * tokens + 4) / kRows * kRows;
  if (most < std::min(kRowsMin, outputs)) {
    return layout;
  }
  // Slices of one size.
  const std::int64_t slices = div_up(outputs, most);
  layout.rows = div_up(div_up(outputs, slices), kRows) * kRows;
  layout.row_scale = layout.weight + rounded_up(layout.rows * inputs);
  layout.product = layout.row_scale + rounded_up(layout.rows * 4);
  layout.end = layout.product + rounded_up(layout.rows * tokens * 4);
  return layout;
}

/// The library's product: every byte a number. Whole panels, whose last rows may be zeros.
LinearArgs plain_of(const LinearArgs& args,
                    const Layout& layout,
                    std::byte* scratch,
                    std::int64_t rows) {
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t inputs = args.weight.shape[1];
  const std::int64_t whole = div_up(rows, kRows) * kRows;
  return {.x = tensor_2d<const std::byte>(scratch, DType::kF8, tokens, inputs),
          .weight = tensor_2d<const std::byte>(scratch + layout.weight, DType::kF8, whole, inputs),
          .out = tensor_2d<std::byte>(scratch + layout.product, DType::kF32, tokens, whole)};
}

void round_tokens(device::CudaStream& stream,
                  const LinearArgs& args,
                  const Layout& layout,
                  std::byte* scratch) {
  constexpr std::int64_t kWarps = kF8Threads / 32;
  const std::int64_t tokens = args.x.shape[0];
  const F8TokensParams params{.x = args.x.data,
                              .x_stride = args.x.stride[0] * dtype_size(args.x.dtype),
                              .out = scratch,
                              .scale = reinterpret_cast<float*>(scratch + layout.token_scale),
                              .tokens = static_cast<std::int32_t>(tokens),
                              .inputs = static_cast<std::int32_t>(args.weight.shape[1])};
  stream.launch(kernel("heddle_f8_tokens"),
                {.grid = {static_cast<std::uint32_t>(div_up(tokens, kWarps)), 1, 1},
                 .block = {kF8Threads, 1, 1}},
                params);
}

void unpack_rows(device::CudaStream& stream,
                 const std::byte* weight,
                 const LinearArgs& plain,
                 float* scale,
                 std::byte* out) {
  constexpr std::int64_t kPartsOfBlock = std::int64_t{kF8Threads / 32} * 8;
  const std::int64_t inputs = plain.weight.shape[1];
  const F8RowsParams params{
      .weight = weight, .out = out, .scale = scale, .inputs = static_cast<std::int32_t>(inputs)};
  stream.launch(kernel("heddle_f8_rows"),
                {.grid = {static_cast<std::uint32_t>(plain.weight.shape[0] / kRows),
                          static_cast<std::uint32_t>(div_up(inputs / 32, kPartsOfBlock)),
                          1},
                 .block = {kF8Threads, 1, 1}},
                params);
}

/// Of outputs [first, first + rows) of a product, what the library gave meets the scales.
void scale(device::CudaStream& stream,
           const LinearArgs& args,
           const Layout& layout,
           std::byte* scratch,
           std::int64_t first,
           std::int64_t rows) {
  const std::int64_t tokens = args.x.shape[0];
  const auto from = [first](const ConstTensorRef& values) {
    return values.present() ? values.as<float>() + first : nullptr;
  };
  const F8ScaledParams params{
      .product = reinterpret_cast<const float*>(scratch + layout.product),
      .product_stride = div_up(rows, kRows) * kRows,
      .token_scale = reinterpret_cast<const float*>(scratch + layout.token_scale),
      .row_scale = reinterpret_cast<const float*>(scratch + layout.row_scale),
      .bias = from(args.bias),
      .residual = from(args.residual),
      .residual_stride = args.residual.stride[0],
      .out = args.out.data + first * dtype_size(args.out.dtype),
      .out_stride = args.out.stride[0],
      .tokens = static_cast<std::int32_t>(tokens),
      .outputs = static_cast<std::int32_t>(rows),
      .out_bf16 = args.out.dtype == DType::kBf16};
  stream.launch(kernel("heddle_f8_scaled"),
                {.grid = {static_cast<std::uint32_t>(div_up(rows, std::int64_t{kF8Threads})),
                          static_cast<std::uint32_t>(div_up(tokens, kF8ScaledTokens)),
                          1},
                 .block = {kF8Threads, 1, 1}},
                params);
}

}  // namespace

bool multiply_f8(device::CudaStream& stream, const LinearArgs& args) {
  const std::int64_t outputs = args.weight.shape[0];
  const std::int64_t inputs = args.weight.shape[1];
  const Layout layout = lay_out(stream, args);
  Blas& blas = stream.attachment<Blas>();
  if (layout.rows == 0 || !moves_by(8, args.x.data, args.x.dtype, args.x.stride[0]) ||
      !blas.opens(stream)) {
    return false;
  }
  std::byte* const scratch = stream.scratch(layout.end);
  if (scratch == nullptr) {
    return true;  // The stream has failed.
  }
  const std::int64_t last = outputs - (outputs - 1) / layout.rows * layout.rows;
  for (const std::int64_t rows : {layout.rows, last}) {
    if (!blas.takes(stream, plain_of(args, layout, scratch, rows), layout.end)) {
      tell(stream, false);
      return false;
    }
  }
  tell(stream, true);
  round_tokens(stream, args, layout, scratch);
  for (std::int64_t first = 0; first < outputs; first += layout.rows) {
    const std::int64_t rows = std::min(layout.rows, outputs - first);
    const LinearArgs plain = plain_of(args, layout, scratch, rows);
    unpack_rows(stream,
                args.weight.data + first * spec::row_bytes(args.weight.dtype, inputs),
                plain,
                reinterpret_cast<float*>(scratch + layout.row_scale),
                scratch + layout.weight);
    if (!blas.multiply(stream, plain, layout.end)) {
      stream.fail(
          {.code = Code::kUnavailable, .message = "cuBLASLt takes a product of FP8 no more"});
      return true;
    }
    scale(stream, args, layout, scratch, first, rows);
  }
  return true;
}

}  // namespace heddle::ops::cuda
