#include "ops/linear.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"
#include "spec/block_panels.h"

namespace heddle::ops::cpu {
namespace {

// Outputs that stay with one thread: a whole number of register tiles, and of cache lines of out;
// and a panel of blocks.
constexpr std::int64_t kGrain = 16;
/// Outputs of FP8 that are unpacked at once: of more tokens the panel that kernels make of them.
constexpr std::int64_t kUnpackedRowsOfMany = 48;
constexpr std::int64_t kFewTokens = 32;

LinearBlock block_of(const LinearArgs& args, std::int64_t begin, std::int64_t end) {
  const std::int64_t row_bytes = spec::row_bytes(args.weight.dtype, args.weight.shape[1]);
  const auto from = [begin](const ConstTensorRef& tensor) {
    return tensor.present() ? tensor.as<float>() + begin : nullptr;
  };
  return {.x = args.x.data,
          .x_stride = args.x.stride[0],
          .weight = args.weight.data + begin * row_bytes,
          .scale = from(args.scale),
          .bias = from(args.bias),
          .residual = from(args.residual),
          .residual_stride = args.residual.stride[0],
          .out = args.out.as<float>() + begin,
          .out_stride = args.out.stride[0],
          .tokens = args.x.shape[0],
          .outputs = end - begin,
          .inputs = args.weight.shape[1]};
}

/// x as a kernel wants it.
struct Packed {
  const std::byte* x = nullptr;
  const float* scale = nullptr;
};

const LinearKernel& kernel_for(DType weights) {
  const SimdKernels& simd = simd_kernels();
  if (spec::is_f8(weights)) {
    return simd.linear_bf16;  // Of rows that are unpacked.
  }
  if (spec::is_blocks(weights)) {
    return simd
        .linear_blocks[static_cast<std::size_t>(weights) - static_cast<std::size_t>(DType::kQ80)];
  }
  return weights == DType::kI8     ? simd.linear_int8
         : weights == DType::kBf16 ? simd.linear_bf16
                                   : simd.linear_f32;
}

/// Packs x, tile after tile of tokens, into the stream's scratch memory.
Packed pack(const LinearArgs& args, device::CpuStream& stream, device::ThreadPool& pool) {
  const LinearKernel& kernel = kernel_for(args.weight.dtype);
  const std::int64_t inputs = args.weight.shape[1];
  const std::int64_t tokens = args.x.shape[0];
  const std::int64_t tiles = (tokens + kPackTokens - 1) / kPackTokens;
  const std::int64_t tile_bytes = kPackTokens * kernel.token_bytes(inputs);
  const std::int64_t scale_bytes = kPackTokens * static_cast<std::int64_t>(sizeof(float));
  std::byte* x = stream.scratch(static_cast<std::size_t>(tiles * (tile_bytes + scale_bytes)));
  auto* scale = reinterpret_cast<float*>(x + tiles * tile_bytes);
  pool.parallel_for(tiles, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t tile = begin; tile < end; ++tile) {
      const std::int64_t first = tile * kPackTokens;
      kernel.pack({.x = args.x.data + first * args.x.stride[0] * dtype_size(args.x.dtype),
                   .x_stride = args.x.stride[0],
                   .tokens = std::min(kPackTokens, tokens - first),
                   .inputs = inputs,
                   .out = x + tile * tile_bytes,
                   .scale = scale + first});
    }
  });
  return {.x = x, .scale = scale};
}

/// A product with FP8, `rows` outputs at a time: these become bfloat16, so that the sums are those
/// of such weights to the bit, and stay in a cache meanwhile.
void multiply_f8(LinearBlock block, std::int64_t rows) {
  const std::int64_t inputs = block.inputs;
  const auto unpacked =
      std::make_unique_for_overwrite<std::uint16_t[]>(static_cast<std::size_t>(rows * inputs));
  const std::byte* panel = block.weight;
  const std::int64_t outputs = block.outputs;
  const auto forth = [](const float*& values, std::int64_t by) {
    values += values == nullptr ? 0 : by;
  };
  for (std::int64_t done = 0; done < outputs; done += rows) {
    block.outputs = std::min(rows, outputs - done);
    for (std::int64_t row = 0; row < block.outputs; row += spec::kPanelRows) {
      simd_kernels().unpack_f8({.panel = panel,
                                .inputs = inputs,
                                .rows = std::min(spec::kPanelRows, block.outputs - row),
                                .out = unpacked.get() + row * inputs});
      panel += spec::kPanelRows * spec::row_bytes(DType::kF8, inputs);
    }
    block.weight = reinterpret_cast<const std::byte*>(unpacked.get());
    simd_kernels().linear_bf16.multiply(block);
    forth(block.bias, rows);
    forth(block.residual, rows);
    block.out += rows;
  }
}

}  // namespace

void linear_here(const LinearArgs& args, device::CpuStream& stream, device::ThreadPool& pool) {
  const Packed packed = pack(args, stream, pool);
  pool.parallel_for(args.weight.shape[0], kGrain, [&](std::int64_t begin, std::int64_t end, int) {
    LinearBlock block = block_of(args, begin, end);
    block.packed = packed.x;
    block.x_scale = packed.scale;
    if (spec::is_f8(args.weight.dtype)) {
      multiply_f8(block, block.tokens > kFewTokens ? kUnpackedRowsOfMany : kGrain);
    } else {
      kernel_for(args.weight.dtype).multiply(block);
    }
  });
}

void linear(device::Stream& stream, const LinearArgs& args) {
  device::CpuStream& cpu = cpu_stream(stream);
  cpu.enqueue([args, &cpu](device::ThreadPool& pool) { linear_here(args, cpu, pool); });
}

}  // namespace heddle::ops::cpu
