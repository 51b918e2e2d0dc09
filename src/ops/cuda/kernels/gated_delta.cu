#include "ops/cuda/kernels/batch.cuh"
#include "ops/cuda/kernels/gated_delta_params.h"

/// A layer of linear attention by the gated delta rule. A token comes after the one before it, so
/// that a state's bits do not depend on how its sequence is cut into batches.
namespace heddle::ops::cuda {
namespace {

/// Rows of a state that a lane has of its column: every eighth.
constexpr std::int32_t kLaneRows = 8;

__device__ __forceinline__ float silu(float x) {
  return x / (1.0F + expf(-x));
}

/// Value heads that a key head serves.
__device__ __forceinline__ std::int32_t served(const GatedDeltaParams& params) {
  return params.value_heads / params.key_heads;
}
/// The number of value head `own` of a key head.
__device__ __forceinline__ std::int32_t value_head(const GatedDeltaParams& params,
                                                   std::int32_t key_head,
                                                   std::int32_t own) {
  return params.tiled != 0 ? key_head + own * params.key_heads : key_head * served(params) + own;
}
__device__ __forceinline__ std::int32_t channels(const GatedDeltaParams& params) {
  return 2 * params.key_heads * params.key_dim + params.value_heads * params.value_dim;
}
/// Channels of a key head, and so the floats of a row of its tail.
__device__ __forceinline__ std::int32_t own_channels(const GatedDeltaParams& params) {
  return 2 * params.key_dim + served(params) * params.value_dim;
}
/// The channel of the input that channel `own` of a key head is.
__device__ __forceinline__ std::int32_t channel_of(const GatedDeltaParams& params,
                                                   std::int32_t key_head,
                                                   std::int32_t own) {
  const std::int32_t keys = params.key_heads * params.key_dim;
  if (own < 2 * params.key_dim) {
    const std::int32_t key = own >= params.key_dim ? 1 : 0;
    return key * keys + key_head * params.key_dim + own - key * params.key_dim;
  }
  own -= 2 * params.key_dim;
  return 2 * keys + value_head(params, key_head, own / params.value_dim) * params.value_dim +
         own % params.value_dim;
}

/// Where a key head's states are.
struct DeltaPlace {
  const DeltaPartParams* part;
  std::int64_t within;  ///< Bytes from the beginning of a block.

  __device__ DeltaPlace(const GatedDeltaParams& params, std::int32_t key_head) {
    std::int32_t head = key_head - params.first_head;
    part = params.parts;
    for (; head >= part->heads; ++part) {
      head -= part->heads;
    }
    within = part->offset + head * params.head_bytes;
  }
  [[nodiscard]] __device__ std::int32_t block(std::int32_t sequence) const {
    return part->table[sequence * part->table_stride];
  }
  [[nodiscard]] __device__ float* at(std::int32_t block) const {
    return reinterpret_cast<float*>(part->base + block * part->block_bytes + within);
  }
  [[nodiscard]] __device__ float* own(std::int32_t sequence) const { return at(block(sequence)); }
  [[nodiscard]] __device__ float* copy(std::int32_t sequence, std::int32_t column) const {
    return at(part->copies[sequence * part->copies_stride + column]);
  }
  /// Whether a sequence repeats the first one of a step that was filled up.
  [[nodiscard]] __device__ bool repeats(std::int32_t sequence) const {
    return sequence > 0 && block(sequence) == block(0);
  }
};

/// A sequence's tokens in the batch.
struct DeltaSequence {
  std::int32_t number;
  std::int32_t first;
  std::int32_t count;
  bool fresh;  ///< There is nothing before them.

  __device__ DeltaSequence(const GatedDeltaParams& params, std::int32_t sequence)
      : number(sequence),
        first(params.batch.begin[sequence]),
        count(params.batch.begin[sequence + 1] - first),
        fresh(params.batch.first_position[sequence] == 0) {}
};

/// Channel `own` of a key head, of the sequence's token `at`, which may be before the batch.
__device__ float input(const GatedDeltaParams& params,
                       const DeltaSequence& sequence,
                       const float* tail,
                       std::int32_t key_head,
                       std::int32_t own,
                       std::int32_t at) {
  if (at >= 0) {
    return params.in[(sequence.first + at) * params.in_stride + channel_of(params, key_head, own)];
  }
  return sequence.fresh
             ? 0.0F
             : tail[static_cast<std::int64_t>(params.kernel - 1 + at) * own_channels(params) + own];
}

__device__ float convolved(const GatedDeltaParams& params,
                           const DeltaSequence& sequence,
                           const float* tail,
                           std::int32_t key_head,
                           std::int32_t own,
                           std::int32_t at) {
  const float* const taps =
      params.conv + static_cast<std::int64_t>(channel_of(params, key_head, own)) * params.kernel;
  float sum = 0.0F;
  for (std::int32_t k = 0; k < params.kernel; ++k) {
    const float x = input(params, sequence, tail, key_head, own, at - params.kernel + 1 + k);
    sum = fmaf(taps[k], x, sum);
  }
  return silu(sum);
}

/// b and a of a token's value head become beta and alpha.
__device__ void find_rates(const GatedDeltaParams& params, std::int64_t token, std::int32_t head) {
  float* const rates = params.rates + token * params.rates_stride + head;
  float& second = rates[params.value_heads];
  const float step = second + params.step_bias[head];
  const float softplus = fmaxf(step, 0.0F) + log1pf(expf(-fabsf(step)));
  rates[0] = 1.0F / (1.0F + expf(-rates[0]));
  second = expf(params.fading[head] * softplus);
}

/// Writes the last inputs of a key head, of the sequence's first `count` tokens, to `to`: which may
/// be `tail`, as a thread goes upwards over a channel of its own.
__device__ void keep_tail(const GatedDeltaParams& params,
                          const DeltaSequence& sequence,
                          const float* tail,
                          std::int32_t key_head,
                          std::int32_t count,
                          float* to) {
  const std::int32_t width = own_channels(params);
  for (auto own = static_cast<std::int32_t>(threadIdx.x); own < width; own += kDeltaRuleThreads) {
    for (std::int32_t i = 0; i < params.kernel - 1; ++i) {
      to[static_cast<std::int64_t>(i) * width + own] =
          input(params, sequence, tail, key_head, own, count - params.kernel + 1 + i);
    }
  }
}

/// Of the eight lanes that have a column.
__device__ __forceinline__ float column_sum(float value) {
  value += shuffle_xor(value, 4U);
  value += shuffle_xor(value, 8U);
  return value + shuffle_xor(value, 16U);
}

/// A lane's part of a strip of a state: of one column the rows from `row` on, every eighth.
template <int kRows>
class StripPart {
 public:
  __device__ StripPart(const GatedDeltaParams& params, std::int32_t head)
      : params_(params), head_(head) {
    const auto lane = static_cast<std::int32_t>(lane_index());
    row_ = lane / 4;
    column_ = static_cast<std::int32_t>(threadIdx.x / kWarpThreads) * 4 + lane % 4;
    value_ = static_cast<std::int32_t>(blockIdx.z) * kDeltaStrip + column_;
  }

  __device__ void load(const float* strip) {
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      state_[j] = strip != nullptr && has(j) ? strip[place(j)] : 0.0F;
    }
  }
  __device__ void store(float* strip) const {
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      if (has(j)) {
        strip[place(j)] = state_[j];
      }
    }
  }

  /// What the lane needs of a token: of queries and keys those of its rows.
  struct Token {
    float beta;
    float alpha;
    float value;
    float key[kRows];
    float query[kRows];
  };
  [[nodiscard]] __device__ Token fetch(std::int64_t token, std::int32_t key_head) const {
    const float* const rates = params_.rates + token * params_.rates_stride + head_;
    const float* const query =
        params_.rows + token * channels(params_) + key_head * params_.key_dim;
    const float* const key = query + params_.key_heads * params_.key_dim;
    Token own;
    own.beta = rates[0];
    own.alpha = rates[params_.value_heads];
    own.value = value_ < params_.value_dim ? *value_of(token) : 0.0F;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      own.key[j] = has(j) ? key[row_ + j * kLaneRows] : 0.0F;
      own.query[j] = has(j) ? query[row_ + j * kLaneRows] : 0.0F;
    }
    return own;
  }

  /// Takes in a token. Its value becomes what it sees.
  __device__ void take(std::int64_t token, const Token& own) {
    float memory = 0.0F;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      memory = fmaf(state_[j], own.key[j], memory);
    }
    const float change = own.beta * (own.value - own.alpha * column_sum(memory));
    float seen = 0.0F;
#pragma unroll
    for (int j = 0; j < kRows; ++j) {
      state_[j] = fmaf(own.key[j], change, own.alpha * state_[j]);
      seen = fmaf(state_[j], own.query[j], seen);
    }
    seen = column_sum(seen);
    if (value_ < params_.value_dim && row_ == 0) {
      *value_of(token) = seen;
    }
  }

 private:
  [[nodiscard]] __device__ float* value_of(std::int64_t token) const {
    return params_.rows + token * channels(params_) + 2 * params_.key_heads * params_.key_dim +
           head_ * params_.value_dim + value_;
  }
  [[nodiscard]] __device__ bool has(int j) const { return row_ + j * kLaneRows < params_.key_dim; }
  [[nodiscard]] __device__ std::int32_t place(int j) const {
    return (row_ + j * kLaneRows) * kDeltaStrip + column_;
  }

  const GatedDeltaParams& params_;
  std::int32_t head_;
  std::int32_t row_;
  std::int32_t column_;  ///< Of the strip,
  std::int32_t value_;   ///< and of the value head.
  float state_[kRows];
};

/// Value head `own` of a key head, as blocks of the rule count them.
struct RuleHead {
  std::int32_t key_head;
  std::int32_t own;

  __device__ explicit RuleHead(const GatedDeltaParams& params)
      : key_head(params.first_head + static_cast<std::int32_t>(blockIdx.y) / served(params)),
        own(static_cast<std::int32_t>(blockIdx.y) % served(params)) {}
};

/// Nobody needs what a repeated sequence sees; it is zeros.
__device__ void see_nothing(const GatedDeltaParams& params,
                            const DeltaSequence& sequence,
                            std::int32_t head) {
  const std::int32_t column =
      static_cast<std::int32_t>(blockIdx.z) * kDeltaStrip + static_cast<std::int32_t>(threadIdx.x);
  if (threadIdx.x >= kDeltaStrip || column >= params.value_dim) {
    return;
  }
  for (std::int32_t t = 0; t < sequence.count; ++t) {
    params.rows[(sequence.first + t) * static_cast<std::int64_t>(channels(params)) +
                2 * params.key_heads * params.key_dim + head * params.value_dim + column] = 0.0F;
  }
}

template <int kRows>
__device__ void run_rule(const GatedDeltaParams& params) {
  const DeltaSequence sequence(params, static_cast<std::int32_t>(blockIdx.x));
  const RuleHead which(params);
  const std::int32_t head = value_head(params, which.key_head, which.own);
  const DeltaPlace place(params, which.key_head);
  if (sequence.count == 0) {
    return;
  }
  if (place.repeats(sequence.number)) {
    see_nothing(params, sequence, head);
    return;
  }
  const std::int64_t strips = gridDim.z;
  const std::int64_t strip = params.tail + (which.own * strips + blockIdx.z) *
                                               static_cast<std::int64_t>(params.key_dim) *
                                               kDeltaStrip;
  float* const kept = place.own(sequence.number);
  const bool has_tail = which.own == 0 && blockIdx.z == 0;
  StripPart<kRows> part(params, head);
  part.load(sequence.fresh ? nullptr : kept + strip);
  std::int32_t column = 0;
  auto next = part.fetch(sequence.first, which.key_head);
  for (std::int32_t t = 0; t < sequence.count; ++t) {
    const auto token = next;
    if (t + 1 < sequence.count) {  // Comes while this one is taken in.
      next = part.fetch(sequence.first + t + 1, which.key_head);
    }
    part.take(sequence.first + t, token);
    for (; column < params.copy_columns; ++column) {
      const std::int32_t behind =
          params.copy_behind[sequence.number * params.copy_columns + column];
      if (behind > t + 1) {
        break;
      }
      if (behind == t + 1) {
        float* const copy = place.copy(sequence.number, column);
        part.store(copy + strip);
        if (has_tail) {
          keep_tail(params, sequence, kept, which.key_head, behind, copy);
        }
      }
    }
  }
  part.store(kept + strip);
  if (has_tail) {
    keep_tail(params, sequence, kept, which.key_head, sequence.count, kept);
  }
}

/// out = norm(row) silu(gate) of a token's value head, by a warp.
template <class Out>
__device__ void gate_head(const GatedDeltaParams& params,
                          std::int64_t token,
                          std::int32_t head,
                          Out* out) {
  const std::int32_t n = params.value_dim;
  const std::int32_t values = 2 * params.key_heads * params.key_dim + head * n;
  const float* const row = params.rows + token * channels(params) + values;
  const float* const gate = params.in + token * params.in_stride + channels(params) + head * n;
  float squares = 0.0F;
  for (auto i = static_cast<std::int32_t>(lane_index()); i < n; i += kWarpThreads) {
    squares = fmaf(row[i], row[i], squares);
  }
  const float scale = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(n) + params.eps);
  for (auto i = static_cast<std::int32_t>(lane_index()); i < n; i += kWarpThreads) {
    const float normed = row[i] * scale * params.norm[i];
    if constexpr (sizeof(Out) == sizeof(float)) {
      out[head * n + i] = normed * silu(gate[i]);
    } else {
      out[head * n + i] = to_bf16(normed * silu(gate[i]));
    }
  }
}

}  // namespace

HEDDLE_KERNEL(heddle_delta_inputs, GatedDeltaParams, kDeltaInputThreads) {
  __shared__ float partial[kBlockWarpsMax];
  const std::int64_t token = blockIdx.x;
  const auto key_head = params.first_head + static_cast<std::int32_t>(blockIdx.z);
  const auto part = static_cast<std::int32_t>(blockIdx.y);  // Queries, keys, values.
  const std::int32_t number = sequence_of(params.batch, token);
  if (number == params.batch.sequences) {
    return;
  }
  const DeltaSequence sequence(params, number);
  const bool of_key = part < 2;
  const std::int32_t n = of_key ? params.key_dim : params.value_dim;
  const std::int32_t begin =
      of_key ? part * params.key_dim : 2 * params.key_dim + (part - 2) * params.value_dim;
  const auto i = static_cast<std::int32_t>(threadIdx.x);
  float x = 0.0F;
  if (i < n) {
    const float* const tail = sequence.fresh ? nullptr : DeltaPlace(params, key_head).own(number);
    x = convolved(params,
                  sequence,
                  tail,
                  key_head,
                  begin + i,
                  static_cast<std::int32_t>(token) - sequence.first);
  }
  if (of_key) {
    const float length = sqrtf(block_sum(x * x, partial) + 1e-6F);
    x /= part == 0 ? length * sqrtf(static_cast<float>(params.key_dim)) : length;
  } else if (i == 0) {
    find_rates(params, token, value_head(params, key_head, part - 2));
  }
  if (i < n) {
    params.rows[token * channels(params) + channel_of(params, key_head, begin + i)] = x;
  }
}

HEDDLE_KERNEL(heddle_delta_rule, GatedDeltaParams, kDeltaRuleThreads) {
  run_rule<kDeltaShortKey / kLaneRows>(params);
}

HEDDLE_KERNEL(heddle_delta_rule_long, GatedDeltaParams, kDeltaRuleThreads) {
  run_rule<kDeltaLongKey / kLaneRows>(params);
}

HEDDLE_KERNEL(heddle_delta_gate, GatedDeltaParams, kDeltaGateThreads) {
  const std::int64_t token = blockIdx.x;
  const std::int32_t head = static_cast<std::int32_t>(
      blockIdx.y * (kDeltaGateThreads / kWarpThreads) + threadIdx.x / kWarpThreads);
  if (head >= params.value_heads || sequence_of(params.batch, token) == params.batch.sequences) {
    return;
  }
  if (params.out_bf16 != 0) {
    gate_head(
        params, token, head, static_cast<std::uint16_t*>(params.out) + token * params.out_stride);
  } else {
    gate_head(params, token, head, static_cast<float*>(params.out) + token * params.out_stride);
  }
}

}  // namespace heddle::ops::cuda
