#include "ops/cuda/kernels/linear_kinds.cuh"
#include "ops/cuda/kernels/silu.cuh"
#include "ops/cuda/kernels/then_normalise.cuh"

/// Few tokens: what counts is that every weight is read once, in whole lines, with enough of it on
/// the way. Tensor cores multiply, so that sixteen tokens cost as one: an operand is 16 outputs of
/// the weight, straight from memory, the other are tokens, eight at a time, which the caches hold.
/// As sums do not mind the order of inputs, a lane loads 16 bytes side by side of its rows, and
/// takes them for the inputs that the instruction says it has.
namespace heddle::ops::cuda {

constexpr int kThinWarps = kThinThreads / 32;
constexpr int kStepBytes = 128;  // Of each row, in one step of a warp: a line.
static_assert(kStepBytes == kInt8Pad);
constexpr int kStages = 3;  // Lines of weights on their way or in use. Registers would hold fewer.

/// The outputs of a block: two runs of eight, which follow each other or are gates and their ups.
struct ThinOutputs {
  int first;   ///< Of the first run.
  int second;  ///< How far away the second one begins.
  int after;   ///< How much further it goes towards `end`.
  int end;     ///< Behind the last output; of gates.

  __device__ explicit ThinOutputs(const LinearParams& params) {
    constexpr int kRun = static_cast<int>(kThinOutputs) / 2;
    const int each = params.gated ? kRun : 2 * kRun;
    first = static_cast<int>(blockIdx.x) * each;
    second = params.gated ? params.outputs / 2 : kRun;
    after = params.gated ? 0 : kRun;
    end = params.gated ? params.outputs / 2 : params.outputs;
  }
  /// Output `i` of run `half`, and whether there is one.
  __device__ int output(int half, int i) const { return first + half * second + i; }
  __device__ bool has(int half, int i) const { return first + half * after + i < end; }
};

/// Where a lane's weights of a line arrive: four times 16 bytes, read by nobody else, so that it
/// need not wait for others.
struct ThinStage {
  uint4 own[2][2][32];  ///< By half of the line, of the rows, and by lane.
};

template <class Kind, int kGroups>
struct ThinWarp {
  typename Kind::Sum sums[kGroups][Kind::kParts][4] = {};
  const std::byte* weight[2];                 ///< The lane's rows g and g + 8.
  const std::byte* x[kGroups][Kind::kParts];  ///< Its token of each group; nullptr: there is none.
  std::int64_t bytes;                         ///< Of a row.

  __device__ ThinWarp(const LinearParams& params, const ThinOutputs& outputs) {
    const int g = static_cast<int>(lane_index()) / 4;
    bytes =
        static_cast<std::int64_t>(params.inputs) * static_cast<int>(sizeof(typename Kind::Element));
    for (int half = 0; half < 2; ++half) {
      // Beyond the last output, any row will do: nobody stores what comes of it.
      const int row = outputs.has(half, g) ? outputs.output(half, g) : params.outputs - 1;
      weight[half] = params.weight + row * bytes;
    }
    for (int group = 0; group < kGroups; ++group) {
      const int token = group * 8 + g;
      const std::int64_t offset = token * params.x_stride;
      x[group][0] = token < params.tokens ? params.x + offset : nullptr;
      if constexpr (Kind::kParts == 2) {
        x[group][1] = token < params.tokens ? params.x_low + offset : nullptr;
      }
    }
  }

  /// Where in a row's line the lane's 16 bytes of a half are.
  __device__ static std::int64_t own(int part) {
    return part * (kStepBytes / 2) + static_cast<int>(lane_index()) % 4 * 16;
  }

  /// Begins to bring the weights of a line that is all there and aligned.
  __device__ void fetch(ThinStage& stage, std::int64_t line) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint4& place = stage.own[i / 2][i % 2][lane_index()];
      copy_async(reinterpret_cast<std::byte*>(&place), weight[i % 2] + line + own(i / 2), true);
    }
  }

  /// Adds the products of that line, which has arrived.
  __device__ void add_fetched(const ThinStage& stage, std::int64_t line) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint4 a[2] = {stage.own[part][0][lane_index()], stage.own[part][1][lane_index()]};
      add<true>(a, line + own(part));
    }
  }

  /// The same for a line of which a part may be missing, or that lies anywhere.
  __device__ void add_gathered(std::int64_t line) {
    using Element = typename Kind::Element;
    for (int part = 0; part < 2; ++part) {
      const std::int64_t at = line + own(part);
      const uint4 a[2] = {gather<Element>(weight[0], at, bytes),
                          gather<Element>(weight[1], at, bytes)};
      add<false>(a, at);
    }
  }

  /// Multiplies 16 bytes of the rows g and g + 8 with those of all tokens.
  template <bool kWhole>
  __device__ void add(const uint4 (&a)[2], std::int64_t at) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      uint4 b[Kind::kParts];
#pragma unroll
      for (int part = 0; part < Kind::kParts; ++part) {
        b[part] = tokens<kWhole>(x[group][part], at);
      }
      multiply(sums[group], a, b);
    }
  }

  /// 16 bytes of a token, or of a half of it, which is padded.
  template <bool kWhole>
  __device__ uint4 tokens(const std::byte* row, std::int64_t at) const {
    if (row == nullptr) {
      return make_uint4(0, 0, 0, 0);
    }
    if constexpr (kWhole || Kind::kParts == 2) {
      return *reinterpret_cast<const uint4*>(row + at);
    } else {
      return gather<typename Kind::Element>(row, at, bytes);
    }
  }

  /// Two products of what lanes have loaded: of the first and of the last 8 bytes of each.
  __device__ static void multiply(typename Kind::Sum (&sums)[Kind::kParts][4],
                                  const uint4 (&a)[2],
                                  const uint4 (&b)[Kind::kParts]) {
    std::uint32_t first[Kind::kParts][2];
    std::uint32_t last[Kind::kParts][2];
    for (int i = 0; i < Kind::kParts; ++i) {
      first[i][0] = b[i].x;
      first[i][1] = b[i].y;
      last[i][0] = b[i].z;
      last[i][1] = b[i].w;
    }
    const std::uint32_t a_first[4] = {a[0].x, a[1].x, a[0].y, a[1].y};
    const std::uint32_t a_last[4] = {a[0].z, a[1].z, a[0].w, a[1].w};
    Kind::multiply(sums, a_first, first);
    Kind::multiply(sums, a_last, last);
  }
};

/// Has a warp add up its lines: every kThinWarps-th.
template <class Kind, int kGroups>
__device__ void add_lines(const LinearParams& params,
                          ThinWarp<Kind, kGroups>& work,
                          int warp,
                          ThinStage (&stages)[kStages]) {
  const std::int64_t whole = params.aligned ? work.bytes / kStepBytes : 0;
  const std::int64_t lines = (work.bytes + kStepBytes - 1) / kStepBytes;
  const auto fetch = [&](std::int64_t line, int stage) {
    if (line < whole) {
      work.fetch(stages[stage], line * kStepBytes);
    }
    copy_async_commit();  // An empty group where there is nothing: groups are counted.
  };
  std::int64_t line = warp;
  for (int ahead = 0; ahead < kStages - 1; ++ahead) {
    fetch(line + ahead * kThinWarps, ahead);
  }
  wait_for_kernels();  // Weights are there; tokens are what the kernels before give.
  for (int stage = 0; line < whole; line += kThinWarps) {
    copy_async_wait<kStages - 2>();
    fetch(line + (kStages - 1) * kThinWarps, stage == 0 ? kStages - 1 : stage - 1);
    work.add_fetched(stages[stage], line * kStepBytes);
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
  for (; line < lines; line += kThinWarps) {
    work.add_gathered(line * kStepBytes);
  }
}

template <class Kind, int kGroups>
__device__ void linear_thin(const LinearParams& params) {
  constexpr int kTokens = 8 * kGroups;
  using Total = typename Kind::Total;
  // First what warps fetch, then what they have added up.
  __shared__ ThinStage stages[kThinWarps][kStages];
  using Totals = Total[kThinWarps][kTokens][kThinOutputs];
  static_assert(sizeof(Totals) <= sizeof(stages));
  Totals& totals = *reinterpret_cast<Totals*>(&stages);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const ThinOutputs outputs(params);
  ThinWarp<Kind, kGroups> work(params, outputs);
  add_lines(params, work, warp, stages[warp]);
  __syncthreads();
  const int g = static_cast<int>(lane_index()) / 4;
  const int t = static_cast<int>(lane_index()) % 4;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      totals[warp][group * 8 + 2 * t + i % 2][g + i / 2 * 8] = total_of<Kind>(work.sums[group], i);
    }
  }
  __syncthreads();
  const auto value = [&](int token, int half, int column) {
    Total total = totals[0][token][half * 8 + column];
    for (int w = 1; w < kThinWarps; ++w) {
      total += totals[w][token][half * 8 + column];
    }
    return Kind::value(params, token, outputs.output(half, column), total);
  };
  const int each = params.gated ? 8 : 16;  // Results of a token.
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * each; i += kThinThreads) {
    const int token = i / each;
    const int half = i % each / 8;
    const int column = i % 8;
    if (token >= params.tokens || !outputs.has(half, column)) {
      continue;
    }
    const int output = outputs.output(half, column);
    if (params.gated) {
      const int up = outputs.output(1, column);
      const float bias = params.bias == nullptr ? 0.0F : params.bias[output];
      const float bias_up = params.bias == nullptr ? 0.0F : params.bias[up];
      store_result(params,
                   token,
                   output,
                   silu_mul(value(token, 0, column) + bias, value(token, 1, column) + bias_up));
    } else {
      store_output(params, token, output, value(token, half, column));
    }
  }
  if (params.norm.counter != nullptr) {
    __syncthreads();  // Nobody reads sums any more.
    then_normalise(params, *reinterpret_cast<ThenNormShared<kThinWarps>*>(&stages));
  }
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL_EARLY(heddle_linear_thin_bf16_8,
                    heddle::ops::cuda::LinearParams,
                    heddle::ops::cuda::kThinThreads,
                    4) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Bf16Kind, 1>(params);
}
HEDDLE_KERNEL_EARLY(heddle_linear_thin_bf16_16,
                    heddle::ops::cuda::LinearParams,
                    heddle::ops::cuda::kThinThreads,
                    3) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Bf16Kind, 2>(params);
}
HEDDLE_KERNEL_EARLY(heddle_linear_thin_int8_8,
                    heddle::ops::cuda::LinearParams,
                    heddle::ops::cuda::kThinThreads,
                    3) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Int8Kind, 1>(params);
}
HEDDLE_KERNEL_EARLY(heddle_linear_thin_int8_16,
                    heddle::ops::cuda::LinearParams,
                    heddle::ops::cuda::kThinThreads,
                    3) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Int8Kind, 2>(params);
}
HEDDLE_KERNEL_EARLY(heddle_linear_thin_bf16_32,
                    heddle::ops::cuda::LinearParams,
                    heddle::ops::cuda::kThinThreads,
                    2) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Bf16Kind, 4>(params);
}
HEDDLE_KERNEL_EARLY(heddle_linear_thin_int8_32,
                    heddle::ops::cuda::LinearParams,
                    heddle::ops::cuda::kThinThreads,
                    2) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Int8Kind, 4>(params);
}
