#include "ops/cuda/kernels/linear_kinds.cuh"

/// Few tokens: what counts is that every weight is read once, in whole lines, with enough of it on
/// the way. Tensor cores multiply, so that sixteen tokens cost as one: an operand is 16 outputs of
/// the weight, straight from memory, the other are tokens, eight at a time, which the caches hold.
/// As sums do not mind the order of inputs, a lane loads 16 bytes side by side of its rows, and
/// takes them for the inputs that the instruction says it has.
namespace heddle::ops::cuda {

constexpr int kThinWarps = kThinThreads / 32;
constexpr int kStepBytes = 128;  // Of each row, in one step of a warp: a line.
static_assert(kStepBytes == kInt8Pad);

template <class Kind, int kGroups>
struct ThinWarp {
  typename Kind::Sum sums[kGroups][Kind::kParts][4] = {};
  const std::byte* weight[2];                 ///< The lane's rows g and g + 8.
  const std::byte* x[kGroups][Kind::kParts];  ///< Its token of each group; nullptr: there is none.
  std::int64_t bytes;                         ///< Of a row.

  __device__ ThinWarp(const LinearParams& params, int first_output) {
    const int g = static_cast<int>(lane_index()) / 4;
    bytes =
        static_cast<std::int64_t>(params.inputs) * static_cast<int>(sizeof(typename Kind::Element));
    for (int half = 0; half < 2; ++half) {
      // Beyond the last output, any row will do: nobody stores what comes of it.
      const int output = first_output + g + 8 * half;
      const int row = output < params.outputs ? output : params.outputs - 1;
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

  /// Adds the products of a line of inputs. kWhole: all of it is there and aligned.
  template <bool kWhole>
  __device__ void step(std::int64_t line) {
    uint4 a[2][2];
    for (int part = 0; part < 2; ++part) {
      for (int half = 0; half < 2; ++half) {
        const std::int64_t at = line + part * (kStepBytes / 2) + lane_index() % 4 * 16;
        if constexpr (kWhole) {
          a[part][half] = load_once(weight[half] + at);
        } else {
          a[part][half] = gather<typename Kind::Element>(weight[half], at, bytes);
        }
      }
    }
    for (int part = 0; part < 2; ++part) {
      const std::int64_t at = line + part * (kStepBytes / 2) + lane_index() % 4 * 16;
      for (int group = 0; group < kGroups; ++group) {
        uint4 b[Kind::kParts];
        for (int i = 0; i < Kind::kParts; ++i) {
          b[i] = make_uint4(0, 0, 0, 0);
          if (x[group][i] != nullptr) {
            b[i] = kWhole || Kind::kParts == 2
                       ? *reinterpret_cast<const uint4*>(x[group][i] + at)  // Padded where split.
                       : gather<typename Kind::Element>(x[group][i], at, bytes);
          }
        }
        multiply(sums[group], a[part], b);
      }
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

template <class Kind, int kGroups>
__device__ void linear_thin(const LinearParams& params) {
  constexpr int kTokens = 8 * kGroups;
  __shared__ typename Kind::Total totals[kThinWarps][kTokens][kThinOutputs];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first_output = static_cast<int>(blockIdx.x * kThinOutputs);
  ThinWarp<Kind, kGroups> work(params, first_output);
  const std::int64_t whole = params.aligned ? work.bytes / kStepBytes : 0;
  const std::int64_t lines = (work.bytes + kStepBytes - 1) / kStepBytes;
  std::int64_t line = warp;
#pragma unroll 2
  for (; line < whole; line += kThinWarps) {
    work.template step<true>(line * kStepBytes);
  }
  for (; line < lines; line += kThinWarps) {
    work.template step<false>(line * kStepBytes);
  }
  const int g = static_cast<int>(lane_index()) / 4;
  const int t = static_cast<int>(lane_index()) % 4;
  for (int group = 0; group < kGroups; ++group) {
    for (int i = 0; i < 4; ++i) {
      totals[warp][group * 8 + 2 * t + i % 2][g + i / 2 * 8] = total_of<Kind>(work.sums[group], i);
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * static_cast<int>(kThinOutputs);
       i += kThinThreads) {
    const int token = i / static_cast<int>(kThinOutputs);
    const int column = i % static_cast<int>(kThinOutputs);
    if (token < params.tokens && first_output + column < params.outputs) {
      typename Kind::Total total = totals[0][token][column];
      for (int w = 1; w < kThinWarps; ++w) {
        total += totals[w][token][column];
      }
      const int output = first_output + column;
      store_output(params, token, output, Kind::value(params, token, output, total));
    }
  }
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_linear_thin_bf16_8,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kThinThreads) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Bf16Kind, 1>(params);
}
HEDDLE_KERNEL(heddle_linear_thin_bf16_16,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kThinThreads) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Bf16Kind, 2>(params);
}
HEDDLE_KERNEL(heddle_linear_thin_int8_8,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kThinThreads) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Int8Kind, 1>(params);
}
HEDDLE_KERNEL(heddle_linear_thin_int8_16,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kThinThreads) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Int8Kind, 2>(params);
}
HEDDLE_KERNEL(heddle_linear_thin_bf16_32,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kThinThreads) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Bf16Kind, 4>(params);
}
HEDDLE_KERNEL(heddle_linear_thin_int8_32,
              heddle::ops::cuda::LinearParams,
              heddle::ops::cuda::kThinThreads) {
  heddle::ops::cuda::linear_thin<heddle::ops::cuda::Int8Kind, 4>(params);
}
