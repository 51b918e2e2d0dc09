#include "ops/gated_delta.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/exact_math.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"

namespace heddle::ops::cpu {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + exact::exp(-x));
}

/// log(1 + e^x).
double softplus(double x) {
  return std::max(x, 0.0) + exact::log(1.0 + exact::exp(-std::abs(x)));
}

/// Turns b and a of a value head's tokens into beta and alpha, in place.
void find_rates(const GatedDeltaArgs& args,
                std::int64_t first,
                std::int64_t last,
                std::int64_t head) {
  const auto fading = static_cast<double>(args.fading.as<float>()[head]);
  const auto bias = static_cast<double>(args.step_bias.as<float>()[head]);
  for (std::int64_t token = first; token < last; ++token) {
    float* const row = args.rates.as<float>() + token * args.rates.stride[0];
    float& alpha = row[args.shape.value_heads + head];
    row[head] = static_cast<float>(sigmoid(static_cast<double>(row[head])));
    alpha = static_cast<float>(exact::exp(fading * softplus(static_cast<double>(alpha) + bias)));
  }
}

/// The part of the states that a key head is in; its number within that.
std::pair<const DeltaPart*, std::int64_t> part_of(const GatedDeltaArgs& args, std::int64_t head) {
  const DeltaPart* part = args.parts.data();
  for (; head >= part->heads; ++part) {
    head -= part->heads;
  }
  return {part, head};
}

/// Where a key head's state is in the block of a column of a sequence.
float* state_in(const GatedDeltaArgs& args,
                const ConstTensorRef DeltaPart::* table,
                std::int64_t sequence,
                std::int64_t column,
                std::int64_t head) {
  const auto [part, within] = part_of(args, head);
  const ConstTensorRef& blocks = part->*table;
  const std::int64_t block = blocks.as<std::int32_t>()[sequence * blocks.stride[0] + column];
  return reinterpret_cast<float*>(part->base + block * part->block_bytes + part->offset +
                                  within * DeltaHeadLayout(args.shape).bytes());
}

/// Rows [first, last) of a sequence, whose rates are known, of one key head.
void run_rows(const GatedDeltaArgs& args,
              std::int64_t head,
              std::int64_t first,
              std::int64_t last,
              bool fresh,
              float* tail) {
  const spec::LinearAttention& shape = args.shape;
  const DeltaHeadLayout layout(shape);
  const std::int64_t value_head = shape.tiled ? head : head * layout.value_heads;
  const std::int64_t values = value_head * shape.value_dim;
  const float* const rates = args.rates.as<float>() + first * args.rates.stride[0] + value_head;
  simd_kernels().gated_delta(
      {.in = args.in.as<float>() + first * args.in.stride[0],
       .in_stride = args.in.stride[0],
       .tokens = last - first,
       .query = head * shape.key_dim,
       .key = shape.keys() + head * shape.key_dim,
       .value = 2 * shape.keys() + values,
       .gate = shape.channels() + values,
       .key_dim = shape.key_dim,
       .value_dim = shape.value_dim,
       .value_heads = layout.value_heads,
       .value_step = shape.tiled ? shape.key_heads : 1,
       .strips = layout.strips,
       .conv = args.conv.as<float>(),
       .kernel = shape.kernel,
       .beta = rates,
       .alpha = rates + shape.value_heads,
       .rate_stride = args.rates.stride[0],
       .fresh = fresh,
       .tail = tail,
       .state = tail + layout.tail,
       .norm = args.norm.as<float>(),
       .eps = args.eps,
       .out = args.out.data + (first * args.out.stride[0] + values) * dtype_size(args.out.dtype),
       .out_stride = args.out.stride[0],
       .bf16 = args.out.dtype == DType::kBf16});
}

void run_head(const GatedDeltaArgs& args, std::int64_t sequence, std::int64_t head) {
  const spec::LinearAttention& shape = args.shape;
  const DeltaHeadLayout layout(shape);
  const std::int64_t first = args.rows.begin.as<std::int32_t>()[sequence];
  const std::int64_t last = args.rows.begin.as<std::int32_t>()[sequence + 1];
  const std::int64_t value_head = shape.tiled ? head : head * layout.value_heads;
  const std::int64_t step = shape.tiled ? shape.key_heads : 1;
  for (std::int64_t own = 0; own < layout.value_heads; ++own) {
    find_rates(args, first, last, value_head + own * step);
  }
  float* const tail = state_in(args, &DeltaPart::table, sequence, 0, head);
  bool fresh = args.rows.first_position.as<std::int32_t>()[sequence] == 0;
  std::int64_t at = first;
  const ConstTensorRef& copies = args.copy_behind;
  for (std::int64_t column = 0; copies.rank > 0 && column < copies.shape[1]; ++column) {
    const std::int64_t end =
        first + copies.as<std::int32_t>()[sequence * copies.stride[0] + column];
    if (end > at && end <= last) {
      run_rows(args, head, at, end, std::exchange(fresh, false), tail);
      std::memcpy(state_in(args, &DeltaPart::copies, sequence, column, head),
                  tail,
                  static_cast<std::size_t>(layout.bytes()));
      at = end;
    }
  }
  if (at < last) {
    run_rows(args, head, at, last, fresh, tail);
  }
}

}  // namespace

void gated_delta(device::Stream& stream, const GatedDeltaArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const std::int64_t heads = args.shape.key_heads;
    pool.parallel_for(
        args.rows.sequences() * heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
          for (std::int64_t item = begin; item < end; ++item) {
            run_head(args, item / heads, item % heads);
          }
        });
  });
}

}  // namespace heddle::ops::cpu
