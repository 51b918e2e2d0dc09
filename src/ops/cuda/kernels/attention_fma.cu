#include "ops/cuda/kernels/attention_merge.cuh"
#include "ops/cuda/kernels/attention_shape.h"
#include "ops/cuda/kernels/codes.cuh"

// Attention in float32 throughout, for keys of any type and any head_dim: a block goes through
// its positions 32 at a time, one to a lane for the scores, one column to a thread for the values.

namespace heddle::ops::cuda {
namespace {

constexpr int kThreads = kFmaThreads;
constexpr int kWarps = kThreads / static_cast<int>(kWarpThreads);
constexpr int kStep = kFmaStep;
constexpr int kColumnsEach = 2;  // head_dim is at most 256.

/// The parts of dynamic shared memory.
struct Shared {
  float* query;    ///< [rows, stride]
  float* keys;     ///< [kStep, stride]
  float* values;   ///< [kStep, stride]
  float* weight;   ///< [rows, kStep]
  float* rescale;  ///< [rows]; in the end the rows' sums.
  int stride;
};

__device__ __forceinline__ Shared shared_of(std::byte* memory, int head_dim, int rows) {
  Shared shared{};
  shared.stride = fma_stride(head_dim);
  shared.query = reinterpret_cast<float*>(memory);
  shared.keys = shared.query + rows * shared.stride;
  shared.values = shared.keys + kStep * shared.stride;
  shared.weight = shared.values + kStep * shared.stride;
  shared.rescale = shared.weight + rows * kStep;
  return shared;
}

/// Copies a row of `n` elements, by one warp; zeros where it is not `present`.
template <class Row>
__device__ __forceinline__ void load_row(
    float* target, const Row& source, bool present, int n, int stride, bool quads) {
  if (quads && present) {
    for (int i = static_cast<int>(lane_index()) * 4; i < n; i += kStep * 4) {
      store_quad(target, i, load_quad(source, i));
    }
    return;
  }
  for (int i = static_cast<int>(lane_index()); i < stride; i += kStep) {
    target[i] = present && i < n ? load_element(source, i) : 0.0F;
  }
}

template <class Element>
__device__ void load_queries(const AttentionParams& params,
                             const AttentionTile& tile,
                             const Shared& shared,
                             int rows) {
  const int d = params.kv.head_dim;
  for (int row = static_cast<int>(threadIdx.x / kWarpThreads); row < rows; row += kWarps) {
    const Element* source = nullptr;
    if (row < tile.rows) {
      const AttentionRow at = target_of(params, tile, row);
      source = static_cast<const Element*>(params.query) + at.token * params.query_stride +
               static_cast<std::int64_t>(at.head) * d;
    }
    load_row(shared.query + row * shared.stride,
             source,
             source != nullptr,
             d,
             shared.stride,
             params.quads != 0);
  }
}

/// The rows of keys and values that a position has, of floats or of codes.
template <class Element>
struct FloatRows {
  using Row = const Element*;
  static __device__ __forceinline__ Row row(const std::byte* elements,
                                            const std::byte* /*scales*/,
                                            std::int64_t offset,
                                            std::int64_t /*scale_offset*/) {
    return reinterpret_cast<const Element*>(elements + offset);
  }
};
template <class Codes>
struct CodeRows {
  using Row = CodeRow<Codes>;
  static __device__ __forceinline__ Row row(const std::byte* elements,
                                            const std::byte* scales,
                                            std::int64_t offset,
                                            std::int64_t scale_offset) {
    return {.codes = elements + offset, .scale = load_kv_scale(scales, scale_offset)};
  }
};

template <class Rows>
__device__ void load_step(const AttentionParams& params,
                          const AttentionTile& tile,
                          const Shared& shared,
                          std::int32_t first) {
  const PagedKvParams& kv = params.kv;
  const int d = kv.head_dim;
  const bool quads = params.quads != 0;
  const auto head = static_cast<std::int32_t>(blockIdx.y);
  for (int i = static_cast<int>(threadIdx.x / kWarpThreads); i < kStep; i += kWarps) {
    const std::int32_t position = first + i;
    const bool present = position < tile.to;
    typename Rows::Row key{};
    typename Rows::Row value{};
    if (present) {
      const std::int32_t block = kv_block(kv, tile.sequence, position);
      const std::int64_t offset = kv_offset(kv, block, position, head);
      const std::int64_t scale = kv_scale_offset(kv, block, position, head);
      key = Rows::row(kv.keys, kv.key_scales, offset, scale);
      value = Rows::row(kv.values, kv.value_scales, offset, scale);
    }
    load_row(shared.keys + i * shared.stride, key, present, d, shared.stride, quads);
    load_row(shared.values + i * shared.stride, value, present, d, shared.stride, quads);
  }
}

/// The scores of a warp's rows with the lane's key.
template <int kRows>
__device__ __forceinline__ void scores(const Shared& shared,
                                       int first_row,
                                       int head_dim,
                                       float (&out)[kRows]) {
  float4 sums[kRows];
  for (int r = 0; r < kRows; ++r) {
    sums[r] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
  }
  const float* keys = shared.keys + static_cast<int>(lane_index()) * shared.stride;
#pragma unroll 2
  for (int i = 0; i < head_dim; i += 4) {
    const float4 key = load_quad(keys, i);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 query = load_quad(shared.query + (first_row + r) * shared.stride, i);
      sums[r].x = fmaf(query.x, key.x, sums[r].x);
      sums[r].y = fmaf(query.y, key.y, sums[r].y);
      sums[r].z = fmaf(query.z, key.z, sums[r].z);
      sums[r].w = fmaf(query.w, key.w, sums[r].w);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    out[r] = (sums[r].x + sums[r].y) + (sums[r].z + sums[r].w);
  }
}

/// The largest score so far and the sum of weights of each of a warp's rows.
template <int kRows>
struct RowStates {
  float max[kRows];
  float sum[kRows];
};

/// Scores of one step become weights in shared memory, and what is to become of the sums so far.
template <int kRows>
__device__ __forceinline__ void weigh(const AttentionParams& params,
                                      const AttentionTile& tile,
                                      const Shared& shared,
                                      std::int32_t first,
                                      RowStates<kRows>& states) {
  const int first_row = static_cast<int>(threadIdx.x / kWarpThreads) * kRows;
  const auto lane = static_cast<int>(lane_index());
  float score[kRows];
  scores(shared, first_row, params.kv.head_dim, score);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first_row + r;
    const std::int32_t position = position_of(params, tile, row);
    const bool attended = first + lane <= last_attended(tile, position) && row < tile.rows &&
                          first + lane >= first_attended(params, position);
    const float scaled =
        params.cap_log2 > 0.0F ? capped(params, score[r]) : score[r] * params.scale_log2;
    const float own = attended ? scaled : -INFINITY;
    const float max = fmaxf(states.max[r], warp_max(own));
    const float base = max == -INFINITY ? 0.0F : max;  // No position of the row's so far.
    const float weight = exp2_fast(own - base);
    const float rescale = exp2_fast(states.max[r] - base);
    states.max[r] = max;
    states.sum[r] = fmaf(states.sum[r], rescale, warp_sum(weight));
    shared.weight[row * kStep + lane] = weight;
    if (lane == 0) {
      shared.rescale[row] = rescale;
    }
  }
}

/// Adds the values of one step by weight: all rows, one column.
template <int kRows>
__device__ __forceinline__ void add_values(const Shared& shared, int column, float (&sums)[kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    sums[r] *= shared.rescale[r];
  }
#pragma unroll 1  // The rows are enough.
  for (int i = 0; i < kStep; i += 4) {
    float value[4];
    for (int j = 0; j < 4; ++j) {
      value[j] = shared.values[(i + j) * shared.stride + column];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float4 weight = load_quad(shared.weight + r * kStep, i);
      sums[r] = fmaf(weight.x, value[0], sums[r]);
      sums[r] = fmaf(weight.y, value[1], sums[r]);
      sums[r] = fmaf(weight.z, value[2], sums[r]);
      sums[r] = fmaf(weight.w, value[3], sums[r]);
    }
  }
}

/// Hands on the results. They pass through shared memory, where keys were, since threads hold
/// columns and rows are written.
template <int kRows>
__device__ void write_rows(const AttentionParams& params,
                           const AttentionTile& tile,
                           const Shared& shared,
                           const RowStates<kRows / kWarps>& states,
                           const float (&sums)[kColumnsEach][kRows]) {
  static_assert(kRows <= kStep);
  const auto warp = static_cast<int>(threadIdx.x / kWarpThreads);
  const auto lane = static_cast<int>(lane_index());
#pragma unroll
  for (int c = 0; c < kColumnsEach; ++c) {
    const int column = static_cast<int>(threadIdx.x) + c * kThreads;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (column < params.kv.head_dim) {
        shared.keys[r * shared.stride + column] = sums[c][r];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows / kWarps; ++r) {
    const int row = warp * (kRows / kWarps) + r;
    if (lane == 0 && row < tile.rows) {
      const AttentionRow target = target_of(params, tile, row);
      float max = states.max[r];
      float sum = states.sum[r];
      const float shrink = tile.partial ? 1.0F : count_sink(params, target.head, max, sum);
      shared.rescale[row] = sum;
      shared.weight[row] = shrink;
      write_state(params, tile, target, max, sum);
    }
  }
  __syncthreads();
  for (int row = warp; row < tile.rows; row += kWarps) {
    const AttentionRow target = target_of(params, tile, row);
    const float sum = shared.rescale[row];
    const float shrink = shared.weight[row];
    for (int i = lane; i < params.kv.head_dim && sum != 0.0F; i += kStep) {
      write_element(params, tile, target, i, shared.keys[row * shared.stride + i] * shrink, sum);
    }
  }
}

template <int kRows>
__device__ void attend(const AttentionParams& params, const AttentionTile& tile) {
  HEDDLE_DYNAMIC_SHARED(memory);
  if (tile.rows == 0) {
    return;
  }
  const int d = params.kv.head_dim;
  const Shared shared = shared_of(memory, d, kRows);
  RowStates<kRows / kWarps> states;
  for (int r = 0; r < kRows / kWarps; ++r) {
    states.max[r] = -INFINITY;
    states.sum[r] = 0.0F;
  }
  float sums[kColumnsEach][kRows] = {};
  if (params.query_bf16 != 0) {
    load_queries<std::uint16_t>(params, tile, shared, kRows);
  } else {
    load_queries<float>(params, tile, shared, kRows);
  }
  for (std::int32_t first = tile.from; first < tile.to; first += kStep) {
    if (params.kv.codes == kE4m3Codes) {
      load_step<CodeRows<E4m3Codes>>(params, tile, shared, first);
    } else if (params.kv.codes == kInt8Codes) {
      load_step<CodeRows<Int8Codes>>(params, tile, shared, first);
    } else if (params.kv.element_bytes == 2) {
      load_step<FloatRows<std::uint16_t>>(params, tile, shared, first);
    } else {
      load_step<FloatRows<float>>(params, tile, shared, first);
    }
    __syncthreads();
    weigh(params, tile, shared, first, states);
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kColumnsEach; ++c) {
      const int column = static_cast<int>(threadIdx.x) + c * kThreads;
      if (column < d) {
        add_values(shared, column, sums[c]);
      }
    }
    __syncthreads();
  }
  write_rows<kRows>(params, tile, shared, states, sums);
}

}  // namespace

HEDDLE_KERNEL_BLOCKS(heddle_attention_fma_narrow, AttentionParams, kFmaThreads, 4) {
  const AttentionTile tile = narrow_tile<kStep>(params);
  attend<kFmaNarrowRows>(params, tile);
  if (tile.rows > 0) {
    merge_narrow<kFmaThreads>(params, tile);
  }
}

HEDDLE_KERNEL(heddle_attention_fma_medium, AttentionParams, kFmaThreads) {
  attend<kFmaMediumRows>(params, wide_tile<kFmaMediumRows, kStep>(params));
}

HEDDLE_KERNEL(heddle_attention_fma_wide, AttentionParams, kFmaThreads) {
  attend<kFmaWideRows>(params, wide_tile<kFmaWideRows, kStep>(params));
}

}  // namespace heddle::ops::cuda
