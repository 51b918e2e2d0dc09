#include "ops/cuda/kernels/linear_kinds.cuh"
#include "ops/cuda/kernels/low_rank_params.h"

/// What LoRA adapters add to a product, those of all tokens at once. A tile has tokens of one
/// adapter, whose table says where its matrices are, so that blocks of one launch go through many
/// adapters. Tensor cores take sixteen rows of a matrix and eight tokens: as sums do not mind the
/// order of inputs, a lane loads some side by side, and takes them for those that the instruction
/// says it has. How a sum is cut up depends on its length alone.
namespace heddle::ops::cuda {
namespace {

constexpr int kWarps = static_cast<int>(kLowRankThreads) / 32;
constexpr int kStep = static_cast<int>(kLowRankStep);
constexpr int kTokens = static_cast<int>(kLowRankTileTokens);
constexpr int kGroups = kTokens / 8;
constexpr int kLineBytes = 64;  // Of each row, in one step of a warp.
/// Numbers between a token's sums and the next one's, so that lanes write to different banks.
constexpr int kPitch = kStep + 4;

__device__ int warp_index() {
  return static_cast<int>(threadIdx.x) / 32;
}

/// 16 bytes of a row; zeros beyond its end, or where there is no row.
__device__ uint4 piece_of(const std::byte* row, std::int64_t at, std::int64_t bytes, bool aligned) {
  if (row == nullptr || at >= bytes) {
    return make_uint4(0, 0, 0, 0);
  }
  return aligned ? *reinterpret_cast<const uint4*>(row + at)
                 : gather<std::uint16_t>(row, at, bytes);
}

/// Four numbers of a row of `count`, from number `at` on; likewise.
__device__ uint2 quad_of(const std::uint16_t* row, int at, int count) {
  if (row == nullptr || at >= count) {
    return make_uint2(0, 0);
  }
  if (count % 4 == 0) {
    return *reinterpret_cast<const uint2*>(row + at);
  }
  const uint4 some =
      gather<std::uint16_t>(reinterpret_cast<const std::byte*>(row), 2 * at, 2 * count);
  return make_uint2(some.x, some.y);
}

/// Where A x of a token is, of one pair.
template <class Number>
__device__ Number* inner_of(const LowRankParams& params, std::int64_t token, int pair) {
  return reinterpret_cast<Number*>(params.inner) +
         (token * params.pairs + pair) * static_cast<std::int64_t>(params.columns);
}

/// What a block of a shrinking kernel is about: rows [begin, begin + kStep) of a pair's A.
struct ShrinkPart {
  LowRankTile tile;
  LowRankEntry entry;
  int pair;
  int begin;

  __device__ explicit ShrinkPart(const LowRankParams& params)
      : tile(params.tiles[blockIdx.x]), entry{} {
    const int chunks = params.columns / kStep;
    pair = static_cast<int>(blockIdx.y) / chunks;
    begin = static_cast<int>(blockIdx.y) % chunks * kStep;
    if (tile.tokens > 0) {
      entry = tile.table[params.entry + pair];
    }
  }
  __device__ bool empty() const { return begin >= entry.rank; }
};

/// The sums of a warp, for sixteen rows and the tokens of a tile.
struct LowRankSums {
  float of[kGroups][4] = {};
};

/// Adds what the warp has of A x.
__device__ void multiply_a(const LowRankParams& params, const ShrinkPart& part, LowRankSums& sums) {
  const int g = static_cast<int>(lane_index()) / 4;
  const std::int64_t bytes = 2 * static_cast<std::int64_t>(params.inputs);
  const auto row_of = [&](int row) {
    return row < part.entry.rank ? part.entry.a + row * bytes : nullptr;
  };
  const std::byte* const a[2] = {row_of(part.begin + g), row_of(part.begin + g + 8)};
  const std::byte* const x = params.x + 2 * (part.tile.first + g) * params.x_stride;
  const bool aligned = params.aligned != 0;
  const std::int64_t own = static_cast<int>(lane_index()) % 4 * 16;
#pragma unroll 2
  for (std::int64_t line = warp_index() * kLineBytes; line < bytes; line += kWarps * kLineBytes) {
    const uint4 upper = piece_of(a[0], line + own, bytes, aligned);
    const uint4 lower = piece_of(a[1], line + own, bytes, aligned);
    const std::uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
    const std::uint32_t last[4] = {upper.z, lower.z, upper.w, lower.w};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group * 8 < part.tile.tokens) {
        const bool there = group * 8 + g < part.tile.tokens;
        const uint4 token = piece_of(
            there ? x + 2 * (group * 8) * params.x_stride : nullptr, line + own, bytes, aligned);
        mma_bf16(sums.of[group], first, {token.x, token.y});
        mma_bf16(sums.of[group], last, {token.z, token.w});
      }
    }
  }
}

/// Adds B of a pair's A x, for the sixteen outputs from `output` on, of which `own` are the lane's
/// in the pair; -1: it has none.
__device__ void multiply_b(const LowRankParams& params,
                           const LowRankTile& tile,
                           const LowRankEntry& entry,
                           int pair,
                           const int (&own)[2],
                           LowRankSums& sums) {
  const int g = static_cast<int>(lane_index()) / 4;
  const int quad = static_cast<int>(lane_index()) % 4 * 4;
  const auto* const b = reinterpret_cast<const std::uint16_t*>(entry.b);
  const auto row_of = [&](int row) {
    return row >= 0 ? b + static_cast<std::int64_t>(row) * entry.rank : nullptr;
  };
  const std::uint16_t* const rows[2] = {row_of(own[0]), row_of(own[1])};
  for (int step = 0; step < entry.rank; step += kStep) {
    const uint2 upper = quad_of(rows[0], step + quad, entry.rank);
    const uint2 lower = quad_of(rows[1], step + quad, entry.rank);
    const std::uint32_t some[4] = {upper.x, lower.x, upper.y, lower.y};
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group * 8 < tile.tokens) {
        const int token = group * 8 + g;
        const uint2 inner =
            token < tile.tokens
                ? *reinterpret_cast<const uint2*>(
                      inner_of<std::uint16_t>(params, tile.first + token, pair) + step + quad)
                : make_uint2(0, 0);
        mma_bf16(sums.of[group], some, {inner.x, inner.y});
      }
    }
  }
}

/// out += value.
__device__ void add_output(const LowRankParams& params,
                           std::int64_t token,
                           int output,
                           float value) {
  const std::int64_t at = token * params.out_stride + output;
  if (params.out_bf16 != 0) {
    auto* const out = static_cast<std::uint16_t*>(params.out);
    out[at] = to_bf16(from_bf16(out[at]) + value);
  } else {
    static_cast<float*>(params.out)[at] += value;
  }
}

}  // namespace

HEDDLE_KERNEL_BLOCKS(heddle_low_rank_shrink_bf16, LowRankParams, kLowRankThreads, 4) {
  __shared__ float partial[kWarps][kTokens * kPitch];
  const ShrinkPart part(params);
  if (part.empty()) {
    return;
  }
  LowRankSums sums;
  multiply_a(params, part, sums);
  const int g = static_cast<int>(lane_index()) / 4;
  const int pair_of_tokens = static_cast<int>(lane_index()) % 4 * 2;
  for (int group = 0; group < kGroups; ++group) {
    for (int i = 0; i < 4; ++i) {
      const int token = group * 8 + pair_of_tokens + i % 2;
      partial[warp_index()][token * kPitch + g + i / 2 * 8] = sums.of[group][i];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < part.tile.tokens * kStep;
       i += static_cast<int>(kLowRankThreads)) {
    const int token = i / kStep;
    const int row = i % kStep;
    float sum = 0.0F;
    for (int warp = 0; warp < kWarps; ++warp) {
      sum += partial[warp][token * kPitch + row];
    }
    inner_of<std::uint16_t>(params, part.tile.first + token, part.pair)[part.begin + row] =
        to_bf16(sum);
  }
}

HEDDLE_KERNEL_BLOCKS(heddle_low_rank_shrink_f32, LowRankParams, kLowRankThreads, 4) {
  const ShrinkPart part(params);
  if (part.empty()) {
    return;
  }
  for (int row = part.begin + warp_index(); row < part.begin + kStep; row += kWarps) {
    const float* const a = row < part.entry.rank
                               ? reinterpret_cast<const float*>(part.entry.a) +
                                     row * static_cast<std::int64_t>(params.inputs)
                               : nullptr;
    for (int token = 0; token < part.tile.tokens; ++token) {
      const float* const x =
          reinterpret_cast<const float*>(params.x) + (part.tile.first + token) * params.x_stride;
      float sum = 0.0F;
      for (int i = static_cast<int>(lane_index()); a != nullptr && i < params.inputs; i += 32) {
        sum = fmaf(a[i], x[i], sum);
      }
      sum = warp_sum(sum);
      if (lane_index() == 0) {
        inner_of<float>(params, part.tile.first + token, part.pair)[row] = sum;
      }
    }
  }
}

HEDDLE_KERNEL_BLOCKS(heddle_low_rank_expand_bf16, LowRankParams, kLowRankThreads, 4) {
  const LowRankTile tile = params.tiles[blockIdx.x];
  if (tile.tokens == 0) {
    return;
  }
  const int begin =
      static_cast<int>(blockIdx.y) * static_cast<int>(kLowRankOutputs) + warp_index() * kStep;
  const int g = static_cast<int>(lane_index()) / 4;
  LowRankSums sums;
  bool changes[2] = {false, false};
  for (int pair = 0; pair < params.pairs; ++pair) {
    const LowRankEntry entry = tile.table[params.entry + pair];
    const int end = entry.first + entry.outputs;
    if (entry.rank == 0 || begin >= end || begin + kStep <= entry.first) {
      continue;
    }
    int own[2];
    for (int half = 0; half < 2; ++half) {
      const int output = begin + g + half * 8;
      const bool has = output >= entry.first && output < end;
      own[half] = has ? output - entry.first : -1;
      changes[half] = changes[half] || has;
    }
    multiply_b(params, tile, entry, pair, own, sums);
  }
  const int pair_of_tokens = static_cast<int>(lane_index()) % 4 * 2;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    for (int i = 0; i < 4; ++i) {
      const int token = group * 8 + pair_of_tokens + i % 2;
      if (changes[i / 2] && token < tile.tokens) {
        add_output(params, tile.first + token, begin + g + i / 2 * 8, sums.of[group][i]);
      }
    }
  }
}

HEDDLE_KERNEL_BLOCKS(heddle_low_rank_expand_f32, LowRankParams, kLowRankThreads, 4) {
  const LowRankTile tile = params.tiles[blockIdx.x];
  const int each = static_cast<int>(kLowRankOutputs);
  const int output = static_cast<int>(blockIdx.y) * each + static_cast<int>(threadIdx.x) % each;
  for (int pair = 0; tile.tokens > 0 && pair < params.pairs; ++pair) {
    const LowRankEntry entry = tile.table[params.entry + pair];
    if (output < entry.first || output >= entry.first + entry.outputs) {
      continue;
    }
    const float* const b = reinterpret_cast<const float*>(entry.b) +
                           static_cast<std::int64_t>(output - entry.first) * entry.rank;
    for (int token = static_cast<int>(threadIdx.x) / each; token < tile.tokens;
         token += static_cast<int>(kLowRankThreads) / each) {
      const float* const inner = inner_of<float>(params, tile.first + token, pair);
      float sum = 0.0F;
      for (int i = 0; i < entry.rank; ++i) {
        sum = fmaf(b[i], inner[i], sum);
      }
      add_output(params, tile.first + token, output, sum);
    }
  }
}

}  // namespace heddle::ops::cuda
