#include "ops/cuda/kernels/batch.cuh"
#include "ops/cuda/kernels/codes.cuh"
#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/rope_append_params.h"

namespace heddle::ops::cuda {
namespace {

__device__ __forceinline__ float times_minus(float a, float c, float b, float s) {
  return a * c - b * s;
}
__device__ __forceinline__ float times_plus(float b, float c, float a, float s) {
  return b * c + a * s;
}
__device__ __forceinline__ float sum_of_squares(const float4& x) {
  return (x.x * x.x + x.y * x.y) + (x.z * x.z + x.w * x.w);
}

/// A head's elements as they are normalised: by a number and weights, or not at all.
struct HeadScale {
  const float* weight = nullptr;  ///< nullptr: not at all.
  float scale = 1.0F;

  __device__ __forceinline__ float of(float x, std::int32_t i) const {
    return weight == nullptr ? x : x * scale * weight[i];
  }
  __device__ __forceinline__ float4 of(const float4& x, std::int32_t i) const {
    if (weight == nullptr) {
      return x;
    }
    return make_float4(x.x * scale * weight[i],
                       x.y * scale * weight[i + 1],
                       x.z * scale * weight[i + 2],
                       x.w * scale * weight[i + 3]);
  }
};

/// What a thread does of a token's heads. A head's pairs are those (i, i + turned) that rotate, and
/// as pairs (i, i + half - turned) those of what is behind them.
struct Turner {
  const float* cos;
  std::int32_t half;    ///< Pairs of a head.
  std::int32_t turned;  ///< Those that rotate.
  bool quads;

  /// Where pair `at` begins and how far away its other element is.
  struct Pair {
    std::int32_t first;
    std::int32_t second;
  };
  [[nodiscard]] __device__ __forceinline__ Pair pair(std::int32_t at) const {
    return at < turned ? Pair{.first = at, .second = at + turned}
                       : Pair{.first = at + turned, .second = at + half};
  }

  /// Pair `at` of a head of x, or four from it on, turned where it rotates. `out` is where elements
  /// are stored (store_element()); it may be `x`.
  template <class In, class Out>
  __device__ __forceinline__ void turn(const In* x,
                                       Out&& out,
                                       std::int32_t at,
                                       const HeadScale& scale) const {
    const float* sin = cos + turned;
    const auto [i, other] = pair(at);
    const bool rotates = at < turned;
    if (quads) {
      const float4 a = scale.of(load_quad(x, i), i);
      const float4 b = scale.of(load_quad(x, other), other);
      if (!rotates) {
        store_quad(out, i, a);
        store_quad(out, other, b);
        return;
      }
      const float4 c = load_quad(cos, i);
      const float4 s = load_quad(sin, i);
      store_quad(out,
                 i,
                 make_float4(times_minus(a.x, c.x, b.x, s.x),
                             times_minus(a.y, c.y, b.y, s.y),
                             times_minus(a.z, c.z, b.z, s.z),
                             times_minus(a.w, c.w, b.w, s.w)));
      store_quad(out,
                 other,
                 make_float4(times_plus(b.x, c.x, a.x, s.x),
                             times_plus(b.y, c.y, a.y, s.y),
                             times_plus(b.z, c.z, a.z, s.z),
                             times_plus(b.w, c.w, a.w, s.w)));
      return;
    }
    const float a = scale.of(load_element(x, i), i);
    const float b = scale.of(load_element(x, other), other);
    store_element(out, i, rotates ? times_minus(a, cos[i], b, sin[i]) : a);
    store_element(out, other, rotates ? times_plus(b, cos[i], a, sin[i]) : b);
  }

  /// The same elements as they are.
  template <class In, class Out>
  __device__ __forceinline__ void move(const In* x, Out&& out, std::int32_t i) const {
    if (quads) {
      store_quad(out, i, load_quad(x, i));
      store_quad(out, i + half, load_quad(x, i + half));
    } else {
      store_element(out, i, load_element(x, i));
      store_element(out, i + half, load_element(x, i + half));
    }
  }

  /// Of a warp's lane: its share of a head's squares.
  template <class In>
  __device__ __forceinline__ float squares(const In* x) const {
    float sum = 0.0F;
    const std::int32_t step = quads ? kQuad : 1;
    for (auto i = static_cast<std::int32_t>(lane_index()) * step; i < 2 * half;
         i += static_cast<std::int32_t>(kWarpThreads) * step) {
      const float one = quads ? 0.0F : load_element(x, i);
      sum += quads ? sum_of_squares(load_quad(x, i)) : one * one;
    }
    return sum;
  }
};

/// A token of a batch, with its place in the cache.
template <class In, class Out>
class Token {
 public:
  __device__ Token(const RopeAppendParams& params, std::int32_t sequence)
      : params_(params),
        turner_{.cos = params.cos_sin + blockIdx.x * params.cos_sin_stride,
                .half = params.kv.head_dim / 2,
                .turned = params.rotary / 2,
                .quads = params.quads != 0} {
    const std::int64_t token = blockIdx.x;
    position_ = params.batch.first_position[sequence] + static_cast<std::int32_t>(token) -
                params.batch.begin[sequence];
    block_ = kv_block(params.kv, sequence, position_);
    query_ = static_cast<In*>(params.query) + token * params.query_token_stride;
    key_ = static_cast<const In*>(params.key) + token * params.key_token_stride;
    value_ = static_cast<const In*>(params.value) + token * params.value_token_stride;
  }

  /// Threads take neighbouring pairs of all heads: queries, then keys, then values.
  __device__ void append() const {
    const std::int32_t step = turner_.quads ? kQuad : 1;
    const std::int64_t pairs = static_cast<std::int64_t>(heads()) * turner_.half;
    for (std::int64_t at = row_rank() * step; at < pairs; at += row_threads() * step) {
      const std::int32_t head = static_cast<std::int32_t>(at) / turner_.half;
      append(head, static_cast<std::int32_t>(at) - head * turner_.half, {}, {});
    }
  }

  /// The same with heads normalised: a warp takes a head.
  __device__ void append_normalised() const {
    for_heads([this](std::int32_t head) {
      const HeadScale scale = norm_of(head);
      for_pairs([&](std::int32_t i) { append(head, i, scale, scale); });
    });
  }

  /// The same into a cache of codes, normalised or not.
  template <class Codes>
  __device__ void append_codes() const {
    for_heads([this](std::int32_t head) {
      const HeadScale scale = params_.key_norm == nullptr ? HeadScale{} : norm_of(head);
      if (head < params_.heads) {
        for_pairs([&](std::int32_t i) { append(head, i, scale, scale); });
        return;
      }
      head -= params_.heads;
      const bool is_key = head < params_.kv.kv_heads;
      head -= is_key ? 0 : params_.kv.kv_heads;
      const In* x = is_key ? key_ + head * params_.key_head_stride
                           : value_ + head * params_.value_head_stride;
      const auto put = [&](auto&& out) {
        for_pairs([&](std::int32_t i) {
          if (is_key) {
            turner_.turn(x, out, i, scale);
          } else {
            turner_.move(x, out, i);
          }
        });
      };
      LargestOfRow largest;
      put(largest);
      std::byte* const side = is_key ? params_.kv.keys : params_.kv.values;
      const CodesOfRow<Codes> row{.codes = side + kv_offset(params_.kv, block_, position_, head),
                                  .scale = largest.scale<Codes>()};
      put(row);
      if (lane_index() == 0) {
        std::byte* const scales = is_key ? params_.kv.key_scales : params_.kv.value_scales;
        *reinterpret_cast<std::uint16_t*>(scales +
                                          kv_scale_offset(params_.kv, block_, position_, head)) =
            static_cast<std::uint16_t>(float_bits(row.scale) >> 16U);
      }
    });
  }

 private:
  __device__ __forceinline__ std::int32_t heads() const {
    return params_.heads + 2 * params_.kv.kv_heads;
  }

  /// Calls `take(head)` for those of the warp.
  template <class Take>
  __device__ __forceinline__ void for_heads(const Take& take) const {
    const auto warps = static_cast<std::int32_t>(row_threads() / kWarpThreads);
    for (auto head = static_cast<std::int32_t>(row_rank() / kWarpThreads); head < heads();
         head += warps) {
      take(head);
    }
  }
  /// Calls `take(pair)` for those of the lane.
  template <class Take>
  __device__ __forceinline__ void for_pairs(const Take& take) const {
    const std::int32_t step = turner_.quads ? kQuad : 1;
    for (auto i = static_cast<std::int32_t>(lane_index()) * step; i < turner_.half;
         i += static_cast<std::int32_t>(kWarpThreads) * step) {
      take(i);
    }
  }

  /// How the warp's head is normalised.
  __device__ __forceinline__ HeadScale norm_of(std::int32_t head) const {
    if (head >= params_.heads + params_.kv.kv_heads) {
      return {};
    }
    const bool of_query = head < params_.heads;
    const In* x = of_query ? query_ + head * params_.query_head_stride
                           : key_ + (head - params_.heads) * params_.key_head_stride;
    const float mean = warp_sum(turner_.squares(x)) / static_cast<float>(params_.kv.head_dim);
    return {.weight = of_query ? params_.query_norm : params_.key_norm,
            .scale = 1.0F / sqrtf(mean + params_.eps)};
  }

  __device__ __forceinline__ void append(std::int32_t head,
                                         std::int32_t i,
                                         const HeadScale& of_query,
                                         const HeadScale& of_key) const {
    if (head < params_.heads) {
      In* x = query_ + head * params_.query_head_stride;
      turner_.turn(x, x, i, of_query);
      return;
    }
    head -= params_.heads;
    const bool is_key = head < params_.kv.kv_heads;
    head -= is_key ? 0 : params_.kv.kv_heads;
    const std::int64_t offset = kv_offset(params_.kv, block_, position_, head);
    if (is_key) {
      turner_.turn(key_ + head * params_.key_head_stride,
                   reinterpret_cast<Out*>(params_.kv.keys + offset),
                   i,
                   of_key);
    } else {
      turner_.move(value_ + head * params_.value_head_stride,
                   reinterpret_cast<Out*>(params_.kv.values + offset),
                   i);
    }
  }

  const RopeAppendParams& params_;
  Turner turner_;
  std::int32_t position_;
  std::int32_t block_;
  In* query_;
  const In* key_;
  const In* value_;
};

template <class In, class Out>
__device__ void append_token(const RopeAppendParams& params, std::int32_t sequence) {
  const Token<In, Out> token(params, sequence);
  if (params.key_norm != nullptr) {
    token.append_normalised();
  } else {
    token.append();
  }
}

template <class In>
__device__ void append_codes_of(const RopeAppendParams& params, std::int32_t sequence) {
  const Token<In, std::uint16_t> token(params, sequence);
  if (params.kv.codes == kE4m3Codes) {
    token.template append_codes<E4m3Codes>();
  } else {
    token.template append_codes<Int8Codes>();
  }
}

}  // namespace

HEDDLE_KERNEL(heddle_rope_append, RopeAppendParams, 256) {
  const std::int32_t sequence = sequence_of(params.batch, blockIdx.x);
  if (sequence == params.batch.sequences) {
    return;
  }
  if (params.from_bf16 != 0) {  // Of a model in bfloat16, whose cache is so too.
    append_token<std::uint16_t, std::uint16_t>(params, sequence);
  } else if (params.kv.element_bytes == 2) {
    append_token<float, std::uint16_t>(params, sequence);
  } else {
    append_token<float, float>(params, sequence);
  }
}

/// Into a cache of codes: a warp has a head.
HEDDLE_KERNEL(heddle_rope_append_codes, RopeAppendParams, 256) {
  const std::int32_t sequence = sequence_of(params.batch, blockIdx.x);
  if (sequence == params.batch.sequences) {
    return;
  }
  if (params.from_bf16 != 0) {
    append_codes_of<std::uint16_t>(params, sequence);
  } else {
    append_codes_of<float>(params, sequence);
  }
}

}  // namespace heddle::ops::cuda
