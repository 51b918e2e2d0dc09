#include "ops/cuda/kernels/linear_kinds.cuh"
#include "ops/cuda/kernels/silu.cuh"

/// Many tokens, where no library multiplies: a block has kTileOutputs x kTileTokens, each of its
/// eight warps 32 x 32 of them. Lines of inputs come to shared memory ahead of their use, in
/// stages; their places there are such that neither copies nor loads of fragments meet in a bank.
namespace heddle::ops::cuda {

constexpr int kStages = 3;
constexpr int kLineBytes = 64;                // Of a row in a stage.
constexpr int kLineChunks = kLineBytes / 16;  // What is copied, and loaded, at once.
constexpr int kWarpOutputs = 32;
constexpr int kWarpTokens = 32;
constexpr int kWarpsOverOutputs = static_cast<int>(kTileOutputs) / kWarpOutputs;
static_assert(kWarpsOverOutputs * (kTileTokens / kWarpTokens) * 32 == kTileThreads);

template <class Kind>
struct alignas(16) TileStage {
  std::byte weight[kTileOutputs * kLineBytes];
  std::byte x[Kind::kParts][kTileTokens * kLineBytes];
};

/// Where a chunk of a row is. Two rows make a line of all banks; eight rows' chunks of the same
/// number, which are loaded at once, are in different ones.
__device__ inline int place_of(int row, int chunk) {
  return row * kLineBytes + (chunk ^ (row / 2 % kLineChunks)) * 16;
}

/// The first of the sixteen gates that a warp of the block has with their ups.
__device__ inline int first_gate(int output) {
  return static_cast<int>(blockIdx.x * kTileOutputs / 2) + output / 2;
}

/// The output that is row `row` of the block's tile; -1: there is none. Sixteen gates are followed
/// by their ups, so that a lane has both of a pair.
__device__ inline int output_of(const LinearParams& params, int row) {
  if (!params.gated) {
    const int output = static_cast<int>(blockIdx.x * kTileOutputs) + row;
    return output < params.outputs ? output : -1;
  }
  const int gates = params.outputs / 2;
  const int gate = first_gate(row / kWarpOutputs * kWarpOutputs) + row % 16;
  return gate < gates ? gate + row / 16 % 2 * gates : -1;
}

/// Begins to bring chunk `i` of a tile: of row `source` of a matrix, at `matrix` + `source` *
/// `pitch`; -1: of none. Rows and bytes that do not exist are zeros.
template <class Element>
__device__ void fetch_chunk(std::byte* target,
                            const std::byte* matrix,
                            std::int64_t pitch,
                            int source,
                            std::int64_t at,
                            std::int64_t bytes,
                            bool aligned,
                            int i) {
  const int chunk = i % kLineChunks;
  const std::int64_t from = at + chunk * 16;
  std::byte* const place = target + place_of(i / kLineChunks, chunk);
  const bool exists = source >= 0;
  if (aligned) {
    const bool valid = exists && from < bytes;
    copy_async(place, valid ? matrix + source * pitch + from : matrix, valid);
  } else {
    *reinterpret_cast<uint4*>(place) =
        exists ? gather<Element>(matrix + source * pitch, from, bytes) : make_uint4(0, 0, 0, 0);
  }
}

template <class Kind>
__device__ void fetch_stage(const LinearParams& params, TileStage<Kind>& stage, std::int64_t at) {
  using Element = typename Kind::Element;
  const std::int64_t bytes =
      static_cast<std::int64_t>(params.inputs) * static_cast<int>(sizeof(Element));
  const int first_token = static_cast<int>(blockIdx.y * kTileTokens);
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < static_cast<int>(kTileOutputs) * kLineChunks; i += kTileThreads) {
    fetch_chunk<Element>(stage.weight,
                         params.weight,
                         bytes,
                         output_of(params, i / kLineChunks),
                         at,
                         bytes,
                         params.aligned,
                         i);
  }
  for (int part = 0; part < Kind::kParts; ++part) {
    for (int i = thread; i < static_cast<int>(kTileTokens) * kLineChunks; i += kTileThreads) {
      const int token = first_token + i / kLineChunks;
      // What was split is padded and aligned.
      fetch_chunk<Element>(stage.x[part],
                           part == 0 ? params.x : params.x_low,
                           params.x_stride,
                           token < params.tokens ? token : -1,
                           at,
                           Kind::kParts == 2 ? params.x_stride : bytes,
                           Kind::kParts == 2 || params.aligned,
                           i);
    }
  }
}

template <class Kind>
struct TileWarp {
  static constexpr int kOutputTiles = kWarpOutputs / 16;
  static constexpr int kTokenTiles = kWarpTokens / 8;
  static_assert(kOutputTiles == 2, "gates, and their ups");

  typename Kind::Sum sums[kOutputTiles][kTokenTiles][Kind::kParts][4] = {};
  int output;  ///< Where in the block's tile its own begins.
  int token;

  __device__ void multiply(const TileStage<Kind>& stage) {
    const int lane = static_cast<int>(lane_index());
#pragma unroll
    for (int step = 0; step < kLineBytes / 32; ++step) {
      std::uint32_t a[kOutputTiles][4];
#pragma unroll
      for (int m = 0; m < kOutputTiles; ++m) {
        // Rows 0-7, rows 8-15, and those again 16 bytes on.
        const int row = output + m * 16 + lane % 16;
        load_matrices(a[m], stage.weight + place_of(row, step * 2 + lane / 16));
      }
      std::uint32_t b[kTokenTiles][Kind::kParts][2];
#pragma unroll
      for (int part = 0; part < Kind::kParts; ++part) {
#pragma unroll
        for (int n = 0; n < kTokenTiles; n += 2) {
          // Tokens 0-7, those again 16 bytes on, then the same of tokens 8-15.
          const int row = token + n * 8 + lane / 16 * 8 + lane % 8;
          std::uint32_t loaded[4];
          load_matrices(loaded, stage.x[part] + place_of(row, step * 2 + lane / 8 % 2));
          b[n][part][0] = loaded[0];
          b[n][part][1] = loaded[1];
          b[n + 1][part][0] = loaded[2];
          b[n + 1][part][1] = loaded[3];
        }
      }
#pragma unroll
      for (int m = 0; m < kOutputTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          Kind::multiply(sums[m][n], a[m], b[n]);
        }
      }
    }
  }

  /// silu(gate) up of the lane's pairs.
  __device__ void store_gated(const LinearParams& params) const {
    const int g = static_cast<int>(lane_index()) / 4;
    const int t = static_cast<int>(lane_index()) % 4;
    const int gates = params.outputs / 2;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int gate = first_gate(output) + g + i / 2 * 8;
        const int s = static_cast<int>(blockIdx.y * kTileTokens) + token + n * 8 + 2 * t + i % 2;
        if (gate < gates && s < params.tokens) {
          const auto value = [&](int m) {
            const int o = gate + m * gates;
            const float bias = params.bias == nullptr ? 0.0F : params.bias[o];
            return Kind::value(params, s, o, total_of<Kind>(sums[m][n], i)) + bias;
          };
          store_result(params, s, gate, silu_mul(value(0), value(1)));
        }
      }
    }
  }

  __device__ void store(const LinearParams& params) const {
    const int g = static_cast<int>(lane_index()) / 4;
    const int t = static_cast<int>(lane_index()) % 4;
#pragma unroll
    for (int m = 0; m < kOutputTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int o =
              static_cast<int>(blockIdx.x * kTileOutputs) + output + m * 16 + g + i / 2 * 8;
          const int s = static_cast<int>(blockIdx.y * kTileTokens) + token + n * 8 + 2 * t + i % 2;
          if (o < params.outputs && s < params.tokens) {
            const auto total = total_of<Kind>(sums[m][n], i);
            store_output(params, s, o, Kind::value(params, s, o, total));
          }
        }
      }
    }
  }
};

template <class Kind>
__device__ void linear_tile(const LinearParams& params) {
  __shared__ TileStage<Kind> stages[kStages];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  TileWarp<Kind> work;
  work.output = warp % kWarpsOverOutputs * kWarpOutputs;
  work.token = warp / kWarpsOverOutputs * kWarpTokens;
  const std::int64_t bytes =
      static_cast<std::int64_t>(params.inputs) * static_cast<int>(sizeof(typename Kind::Element));
  const int lines = static_cast<int>((bytes + kLineBytes - 1) / kLineBytes);
  for (int ahead = 0; ahead < kStages - 1; ++ahead) {
    if (ahead < lines) {
      fetch_stage<Kind>(params, stages[ahead], static_cast<std::int64_t>(ahead) * kLineBytes);
    }
    copy_async_commit();  // An empty group where there is nothing: groups are counted.
  }
  for (int line = 0; line < lines; ++line) {
    copy_async_wait<kStages - 2>();
    __syncthreads();  // All see the line, and are done with the one whose place is filled next.
    const int next = line + kStages - 1;
    if (next < lines) {
      fetch_stage<Kind>(
          params, stages[next % kStages], static_cast<std::int64_t>(next) * kLineBytes);
    }
    copy_async_commit();
    work.multiply(stages[line % kStages]);
  }
  if (params.gated) {
    work.store_gated(params);
  } else {
    work.store(params);
  }
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_linear_tile_bf16,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kTileThreads) {
  heddle::ops::cuda::linear_tile<heddle::ops::cuda::Bf16Kind>(params);
}
HEDDLE_KERNEL(heddle_linear_tile_int8,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kTileThreads) {
  heddle::ops::cuda::linear_tile<heddle::ops::cuda::Int8Kind>(params);
}
