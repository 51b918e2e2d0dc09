#include "ops/cuda/kernels/last_block.cuh"
#include "ops/cuda/kernels/linear_kinds.cuh"
#include "ops/cuda/kernels/silu.cuh"
#include "ops/cuda/kernels/skinny_params.h"

/// Batches of decode steps: weights come from memory once, as in linear_thin.cu, but a block has
/// 128 outputs, so that tokens come from the caches an eighth as often. Four warps have 32 outputs
/// each of the first half of the tokens, four the same of the second half. A lane copies and loads
/// 16 bytes side by side of its rows, of weights and of tokens, and takes them for the inputs that
/// the instruction says it has: sums do not mind the order.
namespace heddle::ops::cuda {

constexpr int kLine = static_cast<int>(kSkinnyStepBytes);
constexpr int kChunks = kLine / 16;
constexpr int kSkinnyRows = 4;  // Warps, each with 32 outputs.

template <int kTokens>
struct SkinnyStage {
  uint4 weight[kSkinnyRows][2][2][2][32];  ///< By sixteen outputs, half of the line, eight outputs.
  std::byte x[kTokens * kLine];
};

/// Where a chunk of a token is: of two tokens that are loaded at once, in other banks.
__device__ inline int token_place(int token, int chunk) {
  return token * kLine + (chunk ^ (token % 2 * (kChunks / 2))) * 16;
}

/// A step of a tile, in the order in which blocks take them.
struct SkinnyStep {
  int tile;
  int step;

  __device__ void advance(int steps) {
    if (++step == steps) {
      step = 0;
      ++tile;
    }
  }
};

/// The run of a block, and whose the others are.
struct SkinnyRuns {
  long long all;  ///< Steps of all tiles.
  long long blocks;

  __device__ explicit SkinnyRuns(const SkinnyParams& params)
      : all(static_cast<long long>(params.steps) * params.tiles), blocks(gridDim.x) {}
  __device__ long long begin(long long block) const { return block * all / blocks; }
  /// The block that has a step.
  __device__ long long block_of(long long step) const { return ((step + 1) * blocks - 1) / all; }
};

/// The output that is row `row`, below 16, of the `m`th sixteen of a warp's; -1: there is none. Of
/// gates and ups the first sixteen are gates, and the second their ups.
__device__ inline int skinny_output(const LinearParams& params, int tile, int m, int row) {
  const int quarter = static_cast<int>(threadIdx.x) / 32 % kSkinnyRows;
  if (params.gated) {
    const int gates = params.outputs / 2;
    const int gate = tile * static_cast<int>(kSkinnyOutputs) / 2 + quarter * 16 + row;
    return gate < gates ? gate + m * gates : -1;
  }
  const int output = tile * static_cast<int>(kSkinnyOutputs) + quarter * 32 + m * 16 + row;
  return output < params.outputs ? output : -1;
}

/// What a thread copies: of weights, four times 16 bytes of the half of the line that its warp
/// copies; of tokens, a chunk of every 32nd.
template <int kTokens>
struct SkinnyCopies {
  static constexpr int kTurns = kTokens * kChunks > static_cast<int>(kSkinnyThreads) ? 2 : 1;
  static_assert(kTokens * kChunks <= 2 * static_cast<int>(kSkinnyThreads));

  const LinearParams& params;
  std::int64_t bytes;  ///< Of a row.
  int tile = -1;
  const std::byte* weight[2][2] = {};  ///< Of that tile, the lane's in the first step.
  const std::byte* x[kTurns];          ///< Its chunks in the first step; nullptr: no such token.

  __device__ explicit SkinnyCopies(const LinearParams& of)
      : params(of), bytes(static_cast<std::int64_t>(of.inputs) * 2) {
    for (int turn = 0; turn < kTurns; ++turn) {
      const int token = token_of(turn);
      x[turn] = token < min(kTokens, params.tokens)
                    ? params.x + token * params.x_stride + own_chunk() * 16
                    : nullptr;
    }
  }

  __device__ static int own_chunk() { return static_cast<int>(threadIdx.x) % kChunks; }
  __device__ static int token_of(int turn) {
    return (static_cast<int>(threadIdx.x) + turn * static_cast<int>(kSkinnyThreads)) / kChunks;
  }

  __device__ void fetch_weights(SkinnyStage<kTokens>& stage, const SkinnyStep& at) {
    const int lane = static_cast<int>(lane_index());
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int part = warp / kSkinnyRows;
    const int own = part * (kLine / 2) + lane % 4 * 16;
    if (tile != at.tile) {
      tile = at.tile;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int output = skinny_output(params, tile, i / 2, i % 2 * 8 + lane / 4);
        // Beyond the last output, any row will do: nobody stores what comes of it.
        weight[i / 2][i % 2] = params.weight + (output < 0 ? 0 : output) * bytes + own;
      }
    }
    const std::int64_t line = static_cast<std::int64_t>(at.step) * kLine;
    const bool exists = line + own < bytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint4& place = stage.weight[warp % kSkinnyRows][i / 2][part][i % 2][lane];
      copy_async(reinterpret_cast<std::byte*>(&place),
                 exists ? weight[i / 2][i % 2] + line : params.weight,
                 exists);
    }
  }

  __device__ void fetch_tokens(SkinnyStage<kTokens>& stage, const SkinnyStep& at) const {
    const std::int64_t line = static_cast<std::int64_t>(at.step) * kLine;
    const bool within = line + own_chunk() * 16 < bytes;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const bool exists = within && x[turn] != nullptr;
      if (token_of(turn) < kTokens) {
        copy_async(stage.x + token_place(token_of(turn), own_chunk()),
                   exists ? x[turn] + line : params.x,
                   exists);
      }
    }
  }
};

template <int kTokens>
struct SkinnyWarp {
  static constexpr int kGroups = kTokens / 16;  // Of eight tokens.
  static constexpr int kTileFloats = static_cast<int>(kSkinnyOutputs) * kTokens;
  float sums[2][kGroups][4] = {};

  __device__ static int first_token() {
    return static_cast<int>(threadIdx.x) / 32 / kSkinnyRows * (kTokens / 2);
  }

  __device__ void multiply(const SkinnyStage<kTokens>& stage) {
    const int lane = static_cast<int>(lane_index());
    const int quarter = static_cast<int>(threadIdx.x) / 32 % kSkinnyRows;
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint4 a[2][2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a[i / 2][i % 2] = stage.weight[quarter][i / 2][part][i % 2][lane];
      }
      std::uint32_t b[kGroups][2][2];
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        const int token = first_token() + n * 8 + lane / 4;
        const uint4 own = *reinterpret_cast<const uint4*>(
            stage.x + token_place(token, part * (kChunks / 2) + lane % 4));
        b[n][0][0] = own.x;
        b[n][0][1] = own.y;
        b[n][1][0] = own.z;
        b[n][1][1] = own.w;
      }
      // Of the first and of the last 8 bytes of each lane; what is added to comes again late.
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        std::uint32_t rows[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          rows[m][0] = half == 0 ? a[m][0].x : a[m][0].z;
          rows[m][1] = half == 0 ? a[m][1].x : a[m][1].z;
          rows[m][2] = half == 0 ? a[m][0].y : a[m][0].w;
          rows[m][3] = half == 0 ? a[m][1].y : a[m][1].w;
        }
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
          mma_bf16(sums[0][n], rows[0], b[n][half]);
          mma_bf16(sums[1][n], rows[1], b[n][half]);
        }
      }
    }
  }

  /// Calls use(quad, sums) for all of its sums, and where a lane's four are in a tile's memory.
  template <class Use>
  __device__ void each(Use use) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        use(((warp * 2 + m) * kGroups + n) * 32 + static_cast<int>(lane_index()), sums[m][n]);
      }
    }
  }

  /// Where a block leaves its part of a tile's sums.
  __device__ static float4* partial(const SkinnyParams& params,
                                    const SkinnyRuns& runs,
                                    long long block,
                                    int tile) {
    const bool begins_in_it = runs.begin(block) / params.steps == tile;
    return reinterpret_cast<float4*>(params.partial +
                                     (2 * block + (begins_in_it ? 0 : 1)) * kTileFloats);
  }

  /// Leaves its sums; in the last of the blocks that have a part of the tile they become those of
  /// all, added in the order of blocks. Whether this is that one.
  __device__ bool join(const SkinnyParams& params, const SkinnyRuns& runs, int tile, int& shared) {
    const long long begin = static_cast<long long>(tile) * params.steps;
    const long long first = runs.block_of(begin);
    const long long last = runs.block_of(begin + params.steps - 1);
    float4* const own = partial(params, runs, blockIdx.x, tile);
    each([&](int quad, float(&s)[4]) { own[quad] = make_float4(s[0], s[1], s[2], s[3]); });
    if (!is_last_block(params.counters + tile, static_cast<int>(last - first) + 1, shared)) {
      return false;
    }
    for (long long block = first; block <= last; ++block) {
      const float4* const part = partial(params, runs, block, tile);
      each([&](int quad, float(&s)[4]) {
        const float4 added = part[quad];
        s[0] = block == first ? added.x : s[0] + added.x;
        s[1] = block == first ? added.y : s[1] + added.y;
        s[2] = block == first ? added.z : s[2] + added.z;
        s[3] = block == first ? added.w : s[3] + added.w;
      });
    }
    return true;
  }

  __device__ void store(const LinearParams& params, int tile) const {
    const int g = static_cast<int>(lane_index()) / 4;
    const int t = static_cast<int>(lane_index()) % 4;
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = first_token() + n * 8 + 2 * t + i % 2;
        const int first = skinny_output(params, tile, 0, g + i / 2 * 8);
        const int second = skinny_output(params, tile, 1, g + i / 2 * 8);
        if (token >= params.tokens || first < 0) {
          continue;
        }
        if (params.gated) {
          const float bias = params.bias == nullptr ? 0.0F : params.bias[first];
          const float bias_up = params.bias == nullptr ? 0.0F : params.bias[second];
          store_result(
              params, token, first, silu_mul(sums[0][n][i] + bias, sums[1][n][i] + bias_up));
          continue;
        }
        store_output(params, token, first, sums[0][n][i]);
        if (second >= 0) {
          store_output(params, token, second, sums[1][n][i]);
        }
      }
    }
  }
};

template <int kTokens>
__device__ void linear_skinny(const SkinnyParams& params) {
  constexpr int kStages = static_cast<int>(kSkinnyStages);
  HEDDLE_DYNAMIC_SHARED(memory);
  static_assert(sizeof(SkinnyStage<kTokens>) * kStages == skinny_shared_bytes(kTokens));
  auto* const stages = reinterpret_cast<SkinnyStage<kTokens>*>(memory);
  __shared__ int shared;
  const SkinnyRuns runs(params);
  const long long begin = runs.begin(blockIdx.x);
  const int count = static_cast<int>(runs.begin(blockIdx.x + 1LL) - begin);
  const SkinnyStep from{.tile = static_cast<int>(begin / params.steps),
                        .step = static_cast<int>(begin % params.steps)};
  SkinnyCopies<kTokens> copies(params.linear);
  SkinnyStep ahead = from;
  for (int i = 0; i < kStages - 1 && i < count; ++i) {
    copies.fetch_weights(stages[i], ahead);
    ahead.advance(params.steps);
  }
  wait_for_kernels();  // Weights are there; tokens are what the kernels before give.
  ahead = from;
  for (int i = 0; i < kStages - 1; ++i) {
    if (i < count) {
      copies.fetch_tokens(stages[i], ahead);
      ahead.advance(params.steps);
    }
    copy_async_commit();  // An empty group where there is nothing: groups are counted.
  }
  SkinnyWarp<kTokens> work;
  SkinnyStep at = from;
  int first_step = at.step;  // Of this tile, that the block has.
  for (int i = 0; i < count; ++i) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // All see the step, and are done with the one whose place is filled next.
    if (i + kStages - 1 < count) {
      SkinnyStage<kTokens>& next = stages[(i + kStages - 1) % kStages];
      copies.fetch_weights(next, ahead);
      copies.fetch_tokens(next, ahead);
      ahead.advance(params.steps);
    }
    copy_async_commit();
    work.multiply(stages[i % kStages]);
    const bool ends = at.step + 1 == params.steps;
    if (ends || i + 1 == count) {
      const bool whole = ends && first_step == 0;
      if (whole || work.join(params, runs, at.tile, shared)) {
        work.store(params.linear, at.tile);
      }
      work = {};
      first_step = 0;
    }
    at.advance(params.steps);
  }
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL_EARLY(heddle_linear_skinny_16,
                    heddle::ops::cuda::SkinnyParams,
                    heddle::ops::cuda::kSkinnyThreads,
                    2) {
  heddle::ops::cuda::linear_skinny<16>(params);
}
HEDDLE_KERNEL_EARLY(heddle_linear_skinny_32,
                    heddle::ops::cuda::SkinnyParams,
                    heddle::ops::cuda::kSkinnyThreads,
                    2) {
  heddle::ops::cuda::linear_skinny<32>(params);
}
HEDDLE_KERNEL_EARLY(heddle_linear_skinny_64,
                    heddle::ops::cuda::SkinnyParams,
                    heddle::ops::cuda::kSkinnyThreads,
                    2) {
  heddle::ops::cuda::linear_skinny<64>(params);
}
