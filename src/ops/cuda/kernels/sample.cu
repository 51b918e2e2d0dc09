#include "ops/cuda/kernels/row.cuh"
#include "ops/cuda/kernels/sample_params.h"

namespace heddle::ops::cuda {

/// What the likeliest token weighs. Weights are whole, so that sums of them are exact: as fine as a
/// double can be told from 1, less what it takes to add up a whole vocabulary.
constexpr auto kWeightOne = static_cast<float>(Sum{1} << kRowWeightBits);

/// How a row's tokens weigh. In float: many GPUs have next to no units for double, and this is done
/// several times for each token of the vocabulary.
struct Weights {
  const Row& row;
  float largest = 0.0F;
  float temperature = 1.0F;

  __device__ float of(float logit) const { return expf((logit - largest) / temperature); }
  /// 0 for a token that the mask does not allow.
  __device__ Sum counted(int token, float logit, float least = 0.0F) const {
    if (!row.allows(token)) {
      return 0;
    }
    const float weight = of(logit);
    return weight < least ? 0 : static_cast<Sum>(weight * kWeightOne + 0.5F);
  }
};

__device__ inline bool finite(float value) {
  constexpr std::uint32_t kExponent = 0x7f800000U;
  return (float_bits(value) & kExponent) != kExponent;
}

/// What stays of a row after top_k and top_p.
__device__ inline Cut cut_row(RowShared& shared,
                              const Row& row,
                              const SampleRow& asked,
                              float largest,
                              const Weights& weights) {
  Cut by_count;
  if (asked.top_k > 0 && asked.top_k < row.vocab) {
    by_count = most_likely(
        shared,
        row,
        largest,
        [&](int token, float) { return row.allows(token) ? Sum{1} : Sum{0}; },
        [&](Sum) { return static_cast<Sum>(asked.top_k); });
  }
  if (!(asked.top_p < 1.0F)) {
    return by_count;
  }
  // Within the first cut, so that it need not be looked at again.
  return most_likely(
      shared,
      row,
      largest,
      [&](int token, float logit) {
        return by_count.keeps(token, logit) ? weights.counted(token, logit) : 0;
      },
      [&](Sum total) {
        const auto goal =
            static_cast<Sum>(ceil(static_cast<double>(asked.top_p) * static_cast<double>(total)));
        return goal > total ? total : goal > 0 ? goal : Sum{1};
      });
}

__device__ inline int draw(RowShared& shared, const Row& row, const SampleRow& asked) {
  const int best = largest_token(shared, row);
  if (best < 0 || !finite(row.logits[best])) {
    return kNoToken;
  }
  if (asked.temperature == 0.0F) {
    return best;
  }
  const float largest = row.logits[best];
  const Weights weights{.row = row, .largest = largest, .temperature = asked.temperature};
  const Cut cut = cut_row(shared, row, asked, largest, weights);
  const Place drawn = first_beyond(
      shared,
      row.vocab,
      [&](int token) {
        const float logit = row.logits[token];
        return cut.keeps(token, logit) ? weights.counted(token, logit, asked.min_p) : 0;
      },
      [&](Sum total) {  // Below the total whatever rounding does, as something stays.
        const auto goal = static_cast<Sum>(asked.uniform * static_cast<double>(total));
        return goal < total ? goal : total - 1;
      });
  return drawn.index < row.vocab ? drawn.index : best;
}

}  // namespace heddle::ops::cuda

HEDDLE_KERNEL(heddle_sample, heddle::ops::cuda::SampleParams, heddle::ops::cuda::kRowThreadsMax) {
  using namespace heddle::ops::cuda;
  __shared__ RowShared shared;
  const heddle::ops::SampleRow asked = params.rows[blockIdx.x];
  const std::uint32_t* mask =
      asked.mask < 0 ? nullptr
                     : params.masks + static_cast<std::int64_t>(asked.mask) * params.mask_stride;
  const Row row{
      .logits = params.logits + blockIdx.x * params.stride, .mask = mask, .vocab = params.vocab};
  const int token = draw(shared, row, asked);
  if (threadIdx.x == 0) {
    params.tokens[blockIdx.x] = token;
  }
}
