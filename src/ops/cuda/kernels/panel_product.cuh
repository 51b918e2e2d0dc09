#pragma once

#include "ops/cuda/kernels/linear_kinds.cuh"
#include "ops/cuda/kernels/panel_formats.cuh"
#include "ops/cuda/kernels/panel_params.h"
#include "ops/cuda/kernels/silu.cuh"
#include "ops/cuda/kernels/then_normalise.cuh"

/// Products with weights as panel_formats.cuh has them. A warp has 32 outputs (two panels that
/// follow each other, or gates and their ups) of up to eight tokens a group. It copies a step of
/// weights ahead of its use, whole and side by side, and makes operands of them in registers. Of
/// few tokens the warps of a block take turns at steps and add up in the end; of many, each has
/// outputs of its own.
///
/// Sums of a part are multiplied with its scales in float32: as exact as the tensor cores are.
/// Minima meet the sum of the tokens' inputs, which a product with ones gives.
namespace heddle::ops::cuda {

constexpr int kPair = 2;  // Panels of a warp.
constexpr std::uint32_t kOnes = 0x3f803f80U;

/// The tokens of a block, and its expert's weights.
struct PanelTile {
  const std::byte* weight;
  const float* bias = nullptr;  ///< Of the expert's outputs, or nullptr.
  int first;                    ///< Token, or slot.
  int count;

  __device__ PanelTile(const PanelParams& params, int tokens_max) {
    const LinearParams& linear = params.linear;
    weight = linear.weight;
    if (params.experts.tiles == nullptr) {
      first = static_cast<int>(blockIdx.y) * tokens_max;
      count = min(tokens_max, linear.tokens - first);
      return;
    }
    count = 0;
    if (static_cast<std::int32_t>(blockIdx.y) < *params.experts.count) {
      const ExpertTile& tile = params.experts.tiles[blockIdx.y];
      weight += tile.expert * params.experts.weight_bytes;
      if (params.experts.bias != nullptr) {
        bias = params.experts.bias + tile.expert * params.experts.bias_stride;
      }
      first = tile.first;
      count = tile.count;
    }
  }
};

/// The outputs of a warp's two panels.
struct PanelOutputs {
  int first;   ///< Of the first panel.
  int second;  ///< How far away the second one begins.
  int after;   ///< How much further it goes towards `end`.
  int end;     ///< Behind the last output; of gates.

  __device__ PanelOutputs(const LinearParams& params, int warp) {
    first = warp * (params.gated ? 16 : 32);
    second = params.gated ? params.outputs / 2 : 16;
    after = params.gated ? 0 : 16;
    end = params.gated ? params.outputs / 2 : params.outputs;
  }
  /// Output `i` of a panel, and whether there is one.
  __device__ int output(int panel, int i) const { return first + panel * second + i; }
  __device__ bool has(int panel, int i) const { return first + panel * after + i < end; }
  /// Where a panel begins, or another one where there is none.
  __device__ int begin(int panel) const { return has(panel, 0) ? output(panel, 0) : 0; }
};

template <class Format, int kGroups>
struct PanelWarp {
  static constexpr int kStageBytes = kPair * Format::kStepBytes;
  /// As many as fit the 48 KiB that a block has in any case, and no more than help.
  static constexpr int kFitting = 48 * 1024 / (static_cast<int>(kPanelWarps) * kStageBytes);
  static constexpr int kStages = kFitting < 4 ? kFitting : 4;
  static_assert(kStages >= 2 && Format::kStepBytes % 16 == 0);

  const LinearParams& params;
  const PanelTile& tile;
  Format source[kPair];
  float sums[kPair][kGroups][4] = {};
  std::int32_t row[kGroups];  ///< Of `x`, of the lane's token of each group; -1: there is none.

  __device__ PanelWarp(const LinearParams& linear,
                       const PanelTile& own,
                       const PanelOutputs& outputs)
      : params(linear),
        tile(own),
        source{Format(own.weight, linear.outputs, linear.inputs, outputs.begin(0)),
               Format(own.weight, linear.outputs, linear.inputs, outputs.begin(1))} {}

  /// Which tokens there are; `rows` as ExpertTiles has them.
  __device__ void find_tokens(const std::int32_t* rows) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int token = group * 8 + static_cast<int>(lane_index()) / 4;
      const int at = tile.first + token;
      row[group] = token >= tile.count ? -1 : rows == nullptr ? at : rows[at];
    }
  }

  __device__ int parts() const { return (params.inputs + 31) / 32; }

  __device__ void fetch(std::byte* stage, int step) const {
    const int some = min(Format::kStepParts, parts() - step * Format::kStepParts);
    if (some > 0) {
#pragma unroll
      for (int panel = 0; panel < kPair; ++panel) {
        source[panel].fetch(stage + panel * Format::kStepBytes, step, some);
      }
    }
    copy_async_commit();  // An empty group where there is nothing: groups are counted.
  }

  /// Four inputs of a token.
  __device__ uint2 tokens(int group, int input) const {
    if (row[group] < 0 || input >= params.inputs) {
      return make_uint2(0, 0);
    }
    const std::byte* const at = params.x + row[group] * params.x_stride + input * 2;
    if (params.aligned) {
      return *reinterpret_cast<const uint2*>(at);
    }
    const auto* const each = reinterpret_cast<const std::uint16_t*>(at);
    return make_uint2(each[0] | static_cast<std::uint32_t>(each[1]) << 16U,
                      each[2] | static_cast<std::uint32_t>(each[3]) << 16U);
  }

  /// Adds a step that has arrived. Lane t of four looks at the scales of part t, for all.
  __device__ void add(const std::byte* stage, int step) {
    const int some = min(Format::kStepParts, parts() - step * Format::kStepParts);
    const int g = static_cast<int>(lane_index()) / 4;
    const int t = static_cast<int>(lane_index()) % 4;
    PanelScales scales[kPair][2];
    if constexpr (Format::kScaled) {
#pragma unroll
      for (int panel = 0; panel < kPair; ++panel) {
        const auto at = Format::place(stage + panel * Format::kStepBytes, step, t < some ? t : 0);
        for (int i = 0; i < 2; ++i) {
          scales[panel][i] = Format::scales(at, g + 8 * i);
        }
      }
    }
#pragma unroll(kGroups == 1 ? Format::kStepParts : 1)
    for (int part = 0; part < Format::kStepParts; ++part) {
      if (part < some) {
        add_part(stage, step, part, scales);
      }
    }
  }

  __device__ void add_part(const std::byte* stage,
                           int step,
                           int part,
                           const PanelScales (&scales)[kPair][2]) {
    const unsigned source_lane = lane_index() / 4 * 4 + static_cast<unsigned>(part);
    std::uint32_t a[kPair][2][4];
    PanelScales of_rows[kPair][2];
#pragma unroll
    for (int panel = 0; panel < kPair; ++panel) {
      Format::operands(Format::place(stage + panel * Format::kStepBytes, step, part), a[panel]);
      if constexpr (Format::kScaled) {
        for (int i = 0; i < 2; ++i) {
          of_rows[panel][i].first = shuffle(scales[panel][i].first, source_lane);
          if constexpr (Format::kMinimum || Format::kHalves) {
            of_rows[panel][i].second = shuffle(scales[panel][i].second, source_lane);
          }
        }
      }
    }
    const int input = (step * Format::kStepParts + part) * 32;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group * 8 >= tile.count) {
        continue;
      }
      const uint2 first = tokens(group, input + Format::x_place(0));
      const uint2 last = tokens(group, input + Format::x_place(1));
      const std::uint32_t b[2][2] = {{first.x, first.y}, {last.x, last.y}};
      if constexpr (!Format::kScaled) {
#pragma unroll
        for (int panel = 0; panel < kPair; ++panel) {
          mma_bf16(sums[panel][group], a[panel][0], b[0]);
          mma_bf16(sums[panel][group], a[panel][1], b[1]);
        }
      } else {
        add_scaled(group, a, b, of_rows);
      }
    }
  }

  __device__ void add_scaled(int group,
                             const std::uint32_t (&a)[kPair][2][4],
                             const std::uint32_t (&b)[2][2],
                             const PanelScales (&scales)[kPair][2]) {
    float of_tokens[4] = {};
    if constexpr (Format::kMinimum) {
      constexpr std::uint32_t kAll[4] = {kOnes, kOnes, kOnes, kOnes};
      mma_bf16(of_tokens, kAll, b[0]);
      mma_bf16(of_tokens, kAll, b[1]);
    }
#pragma unroll
    for (int panel = 0; panel < kPair; ++panel) {
      float(&own)[4] = sums[panel][group];
      float products[4] = {};
      mma_bf16(products, a[panel][0], b[0]);
      if constexpr (Format::kHalves) {
        float others[4] = {};
        mma_bf16(others, a[panel][1], b[1]);
        for (int i = 0; i < 4; ++i) {
          own[i] = fmaf(scales[panel][i / 2].first, products[i], own[i]);
          own[i] = fmaf(scales[panel][i / 2].second, others[i], own[i]);
        }
      } else {
        mma_bf16(products, a[panel][1], b[1]);
        for (int i = 0; i < 4; ++i) {
          own[i] = fmaf(scales[panel][i / 2].first, products[i], own[i]);
          if constexpr (Format::kMinimum) {
            own[i] = fmaf(scales[panel][i / 2].second, of_tokens[i], own[i]);
          }
        }
      }
    }
  }

  /// Adds every `each`-th step from `step` on. Weights are asked for before the kernels before have
  /// ended, but of experts, which those choose.
  __device__ void add_steps(std::byte* stages, int step, int each, const std::int32_t* rows) {
    const int steps = (parts() + Format::kStepParts - 1) / Format::kStepParts;
#pragma unroll
    for (int ahead = 0; ahead < kStages - 1; ++ahead) {
      fetch(stages + ahead * kStageBytes, step + ahead * each);
    }
    wait_for_kernels();
    find_tokens(rows);
    for (int stage = 0; step < steps; step += each) {
      copy_async_wait<kStages - 2>();
      sync_warp();  // All have copied their parts of the step, and are done with the one before.
      const int free = stage == 0 ? kStages - 1 : stage - 1;
      fetch(stages + free * kStageBytes, step + (kStages - 1) * each);
      add(stages + stage * kStageBytes, step);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
  }
};

/// Stores silu(gate) up of two sums.
__device__ inline void store_gated(const PanelParams& all,
                                   const PanelTile& tile,
                                   int token,
                                   int gate,
                                   int up,
                                   float first,
                                   float second) {
  const LinearParams& params = all.linear;
  const float* const bias = all.experts.tiles == nullptr ? params.bias : tile.bias;
  const float gate_sum = first + (bias == nullptr ? 0.0F : bias[gate]);
  const float up_sum = second + (bias == nullptr ? 0.0F : bias[up]);
  const float limit = all.experts.limit;
  store_result(params,
               token,
               gate,
               limit > 0.0F ? silu_mul(gate_sum, up_sum, limit, all.experts.gain)
                            : silu_mul(gate_sum, up_sum));
}

/// Stores a sum by itself, with what is added to it.
__device__ inline void store_sum(
    const PanelParams& all, const PanelTile& tile, int token, int output, float sum) {
  store_output(all.linear, token, output, tile.bias == nullptr ? sum : sum + tile.bias[output]);
}

/// Adds up what the warps of a block have, and stores what comes of it.
template <int kTokens>
__device__ void store_sums(const PanelParams& all,
                           const PanelTile& tile,
                           const PanelOutputs& outputs,
                           const float (&totals)[kPanelWarps][kTokens][kPair][16]) {
  const LinearParams& params = all.linear;
  const auto value = [&](int token, int panel, int column) {
    float total = totals[0][token][panel][column];
    for (int w = 1; w < static_cast<int>(kPanelWarps); ++w) {
      total += totals[w][token][panel][column];
    }
    return total;
  };
  const int each = params.gated ? 16 : 32;  // Results of a token.
  for (int i = static_cast<int>(threadIdx.x); i < tile.count * each; i += kPanelThreads) {
    const int token = i / each;
    const int panel = i % each / 16;
    const int column = i % 16;
    if (!outputs.has(panel, column)) {
      continue;
    }
    if (params.gated) {
      store_gated(all,
                  tile,
                  tile.first + token,
                  outputs.output(0, column),
                  outputs.output(1, column),
                  value(token, 0, column),
                  value(token, 1, column));
    } else {
      store_sum(all,
                tile,
                tile.first + token,
                outputs.output(panel, column),
                value(token, panel, column));
    }
  }
}

template <class Format, int kGroups>
__device__ void panel_thin(const PanelParams& all) {
  constexpr int kWarps = static_cast<int>(kPanelWarps);
  constexpr int kTokens = 8 * kGroups;
  using Warp = PanelWarp<Format, kGroups>;
  // First what warps fetch, then what they have added up.
  __shared__ uint4 memory[kWarps * Warp::kStages * Warp::kStageBytes / 16];
  using Totals = float[kWarps][kTokens][kPair][16];
  static_assert(sizeof(Totals) <= sizeof(memory));
  Totals& totals = *reinterpret_cast<Totals*>(&memory);
  if (all.experts.tiles != nullptr) {
    wait_for_kernels();
  }
  const LinearParams& params = all.linear;
  const PanelTile tile(all, kTokens);
  if (tile.count == 0) {
    return;
  }
  const PanelOutputs outputs(params, static_cast<int>(blockIdx.x));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  Warp work(params, tile, outputs);
  work.add_steps(reinterpret_cast<std::byte*>(memory) + warp * Warp::kStages * Warp::kStageBytes,
                 warp,
                 kWarps,
                 all.experts.rows);
  copy_async_wait<0>();
  __syncthreads();
  const int g = static_cast<int>(lane_index()) / 4;
  const int t = static_cast<int>(lane_index()) % 4;
#pragma unroll
  for (int panel = 0; panel < kPair; ++panel) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        totals[warp][group * 8 + 2 * t + i % 2][panel][g + i / 2 * 8] = work.sums[panel][group][i];
      }
    }
  }
  __syncthreads();
  store_sums(all, tile, outputs, totals);
  if (params.norm.counter != nullptr) {
    __syncthreads();  // Nobody reads sums any more.
    then_normalise(params, *reinterpret_cast<ThenNormShared<kWarps>*>(&memory));
  }
}

template <class Format>
__device__ void panel_many(const PanelParams& all) {
  constexpr int kGroups = static_cast<int>(kPanelTokens) / 8;
  constexpr int kWarps = static_cast<int>(kPanelWarps);
  using Warp = PanelWarp<Format, kGroups>;
  __shared__ uint4 memory[kWarps * Warp::kStages * Warp::kStageBytes / 16];
  if (all.experts.tiles != nullptr) {
    wait_for_kernels();
  }
  const LinearParams& params = all.linear;
  const PanelTile tile(all, static_cast<int>(kPanelTokens));
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const PanelOutputs outputs(params, static_cast<int>(blockIdx.x) * kWarps + warp);
  if (tile.count == 0 || !outputs.has(0, 0)) {
    wait_for_kernels();
    return;
  }
  Warp work(params, tile, outputs);
  work.add_steps(reinterpret_cast<std::byte*>(memory) + warp * Warp::kStages * Warp::kStageBytes,
                 0,
                 1,
                 all.experts.rows);
  const int g = static_cast<int>(lane_index()) / 4;
  const int t = static_cast<int>(lane_index()) % 4;
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = group * 8 + 2 * t + i % 2;
      const int column = g + i / 2 * 8;
      if (token >= tile.count) {
        continue;
      }
      const int slot = tile.first + token;
      const float first = work.sums[0][group][i];
      const float second = work.sums[1][group][i];
      if (params.gated) {
        if (outputs.has(0, column)) {
          const int gate = outputs.output(0, column);
          store_gated(all, tile, slot, gate, outputs.output(1, column), first, second);
        }
        continue;
      }
      if (outputs.has(0, column)) {
        store_sum(all, tile, slot, outputs.output(0, column), first);
      }
      if (outputs.has(1, column)) {
        store_sum(all, tile, slot, outputs.output(1, column), second);
      }
    }
  }
}

}  // namespace heddle::ops::cuda

/// The kernels of a format: for up to 8, up to 32 and more tokens.
#define HEDDLE_PANEL_KERNELS(name, Format)                                                         \
  HEDDLE_KERNEL_EARLY(                                                                             \
      heddle_##name##_8, heddle::ops::cuda::PanelParams, heddle::ops::cuda::kPanelThreads, 4) {    \
    heddle::ops::cuda::panel_thin<heddle::ops::cuda::Format, 1>(params);                           \
  }                                                                                                \
  HEDDLE_KERNEL_EARLY(                                                                             \
      heddle_##name##_32, heddle::ops::cuda::PanelParams, heddle::ops::cuda::kPanelThreads, 3) {   \
    heddle::ops::cuda::panel_thin<heddle::ops::cuda::Format, 4>(params);                           \
  }                                                                                                \
  HEDDLE_KERNEL_EARLY(                                                                             \
      heddle_##name##_many, heddle::ops::cuda::PanelParams, heddle::ops::cuda::kPanelThreads, 2) { \
    heddle::ops::cuda::panel_many<heddle::ops::cuda::Format>(params);                              \
  }                                                                                                \
  static_assert(true)
