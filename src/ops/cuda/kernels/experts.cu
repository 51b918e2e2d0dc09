#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/experts_params.h"
#include "ops/cuda/kernels/warp.cuh"

/// Which experts tokens take, which tokens experts have, and what tokens get of them.
namespace heddle::ops::cuda {
namespace {

/// NaN is the largest.
__device__ bool outweighs(float a, float b) {
  return a != a ? b == b : a > b;
}

struct Candidate {
  float logit;
  int expert;

  /// Whether it is taken before the other: of equal ones the lower number.
  __device__ bool before(const Candidate& other) const {
    return outweighs(logit, other.logit) ||
           (!outweighs(other.logit, logit) && expert < other.expert);
  }
};

/// The first of all lanes' candidates.
__device__ Candidate first_of_warp(Candidate own) {
  for (unsigned mask = kWarpThreads / 2; mask > 0; mask /= 2) {
    const Candidate other{.logit = shuffle_xor(own.logit, mask),
                          .expert = shuffle_xor(own.expert, mask)};
    own = other.before(own) ? other : own;
  }
  return own;
}

/// The likeliest of the lane's experts (every 32nd) that is not marked in `taken`.
__device__ Candidate first_of_lane(const float* logits, int experts, std::uint32_t taken) {
  Candidate best{.logit = -INFINITY, .expert = static_cast<int>(kExpertsMax)};
  int place = 0;
  for (int i = static_cast<int>(lane_index()); i < experts; i += 32, ++place) {
    const Candidate each{.logit = logits[i], .expert = i};
    if ((taken >> static_cast<unsigned>(place) & 1U) == 0 && each.before(best)) {
      best = each;
    }
  }
  return best;
}

__device__ void choose(const ChooseExpertsParams& params, int token) {
  const float* const logits = params.logits + token * params.logits_stride;
  const int lane = static_cast<int>(lane_index());
  std::uint32_t taken = 0;
  Candidate own{.logit = -INFINITY, .expert = static_cast<int>(kExpertsMax)};
  float largest = 0.0F;
  for (int k = 0; k < params.active; ++k) {
    const Candidate found = first_of_warp(first_of_lane(logits, params.experts, taken));
    if (found.expert % 32 == lane) {
      taken |= 1U << static_cast<unsigned>(found.expert / 32);
    }
    own = k == lane ? found : own;
    largest = k == 0 ? found.logit : largest;
  }
  const bool has = lane < params.active;
  const float weight = has ? expf(own.logit - largest) : 0.0F;
  float all = weight;
  if (!params.normalised) {
    all = 0.0F;
    for (int i = lane; i < params.experts; i += 32) {
      all += expf(logits[i] - largest);
    }
  }
  all = warp_sum(all);
  int place = 0;
  for (int k = 0; k < params.active; ++k) {
    place += shuffle(own.expert, static_cast<unsigned>(k)) < own.expert ? 1 : 0;
  }
  if (has) {
    params.chosen[token * params.chosen_stride + place] = own.expert;
    params.weights[token * params.weights_stride + place] = weight / all;
  }
}

}  // namespace
}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_choose_experts,
              heddle::ops::cuda::ChooseExpertsParams,
              heddle::ops::cuda::kChooseThreads) {
  using namespace heddle::ops::cuda;
  const int token = static_cast<int>(blockIdx.x * (kChooseThreads / 32) + threadIdx.x / 32);
  if (token < params.tokens) {
    choose(params, token);
  }
}

HEDDLE_KERNEL(heddle_plan_experts,
              heddle::ops::cuda::PlanExpertsParams,
              heddle::ops::cuda::kPlanThreads) {
  using namespace heddle::ops::cuda;
  __shared__ std::int32_t counts[kExpertsMax];
  __shared__ std::int32_t next[kExpertsMax];  // Slots.
  constexpr int kThreads = static_cast<int>(kPlanThreads);
  const int thread = static_cast<int>(threadIdx.x);
  const int pairs = params.tokens * params.active;
  const auto expert_of = [&](int pair) {
    return params.chosen[pair / params.active * params.chosen_stride + pair % params.active];
  };
  for (int i = thread; i < params.experts; i += kThreads) {
    counts[i] = 0;
  }
  __syncthreads();
  for (int pair = thread; pair < pairs; pair += kThreads) {
    atomicAdd(&counts[expert_of(pair)], 1);
  }
  __syncthreads();
  for (int i = thread; i < params.experts; i += kThreads) {
    int slot = 0;
    int tile = 0;
    for (int before = 0; before < i; ++before) {
      slot += counts[before];
      tile += (counts[before] + params.tile_tokens - 1) / params.tile_tokens;
    }
    next[i] = slot;
    for (int done = 0; done < counts[i]; done += params.tile_tokens, ++tile) {
      params.tiles[tile] = {
          .expert = i, .first = slot + done, .count = min(params.tile_tokens, counts[i] - done)};
    }
    if (i == params.experts - 1) {
      *params.count = tile;
    }
  }
  __syncthreads();
  // In which order an expert has its tokens is chance, and of no consequence: none has a part in
  // what comes of another.
  for (int pair = thread; pair < pairs; pair += kThreads) {
    const std::int32_t slot = atomicAdd(&next[expert_of(pair)], 1);
    params.rows[slot] = pair / params.active;
    params.slots[pair] = slot;
  }
}

HEDDLE_KERNEL(heddle_add_experts, heddle::ops::cuda::AddExpertsParams, 256) {
  using namespace heddle::ops::cuda;
  const std::int64_t token = blockIdx.x;
  const float* const residual =
      params.residual == nullptr ? nullptr : params.residual + token * params.residual_stride;
  const std::int32_t* const slots = params.slots + token * params.active;
  const float* const weights = params.weights + token * params.weights_stride;
  fill_row(
      params.out + token * params.out_stride,
      params.columns,
      params.quads,
      row_rank(),
      row_threads(),
      [&](std::int64_t i) {
        float sum = residual == nullptr ? 0.0F : residual[i];
        for (int k = 0; k < params.active; ++k) {
          sum = fmaf(weights[k], params.product[slots[k] * params.columns + i], sum);
        }
        return sum;
      },
      [&](std::int64_t i) {
        float4 sum =
            residual == nullptr ? make_float4(0.0F, 0.0F, 0.0F, 0.0F) : load_quad(residual, i);
        for (int k = 0; k < params.active; ++k) {
          const float4 gives = load_quad(params.product + slots[k] * params.columns, i);
          sum.x = fmaf(weights[k], gives.x, sum.x);
          sum.y = fmaf(weights[k], gives.y, sum.y);
          sum.z = fmaf(weights[k], gives.z, sum.z);
          sum.w = fmaf(weights[k], gives.w, sum.w);
        }
        return sum;
      });
}

HEDDLE_KERNEL(heddle_share_rows, heddle::ops::cuda::ShareRowsParams, 256) {
  using namespace heddle::ops::cuda;
  const float gate = params.gate[blockIdx.x * params.gate_stride];
  const float share = 1.0F / (1.0F + expf(-gate));
  float* const row = params.rows + blockIdx.x * params.rows_stride;
  for (std::int64_t i = row_rank(); i < params.columns; i += row_threads()) {
    row[i] *= share;
  }
}
