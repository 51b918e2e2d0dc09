#include "ops/cuda/kernels/batch.cuh"
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

/// The pairs (i, i + half) of a head of x, one or four of them, turned. `out` may be `x`.
template <class Element>
__device__ __forceinline__ void turn(
    const float* x, Element* out, const float* cos, std::int32_t half, std::int32_t i, bool quads) {
  const float* sin = cos + half;
  if (quads) {
    const float4 a = load_quad(x, i);
    const float4 b = load_quad(x, i + half);
    const float4 c = load_quad(cos, i);
    const float4 s = load_quad(sin, i);
    store_quad(out,
               i,
               make_float4(times_minus(a.x, c.x, b.x, s.x),
                           times_minus(a.y, c.y, b.y, s.y),
                           times_minus(a.z, c.z, b.z, s.z),
                           times_minus(a.w, c.w, b.w, s.w)));
    store_quad(out,
               i + half,
               make_float4(times_plus(b.x, c.x, a.x, s.x),
                           times_plus(b.y, c.y, a.y, s.y),
                           times_plus(b.z, c.z, a.z, s.z),
                           times_plus(b.w, c.w, a.w, s.w)));
    return;
  }
  const float a = x[i];
  const float b = x[i + half];
  store_element(out, i, times_minus(a, cos[i], b, sin[i]));
  store_element(out, i + half, times_plus(b, cos[i], a, sin[i]));
}

/// The same elements as they are.
template <class Element>
__device__ __forceinline__ void move(
    const float* x, Element* out, std::int32_t half, std::int32_t i, bool quads) {
  if (quads) {
    store_quad(out, i, load_quad(x, i));
    store_quad(out, i + half, load_quad(x, i + half));
  } else {
    store_element(out, i, x[i]);
    store_element(out, i + half, x[i + half]);
  }
}

/// A token's heads are queries, then keys, then values; threads take neighbouring pairs of them.
template <class Element>
__device__ void append_token(const RopeAppendParams& params, std::int32_t sequence) {
  const PagedKvParams& kv = params.kv;
  const std::int64_t token = blockIdx.x;
  const bool quads = params.quads != 0;
  const std::int32_t step = quads ? kQuad : 1;
  const std::int32_t half = kv.head_dim / 2;
  const float* cos = params.cos_sin + token * params.cos_sin_stride;
  const std::int32_t position = params.batch.first_position[sequence] +
                                static_cast<std::int32_t>(token) - params.batch.begin[sequence];
  const std::int32_t block = kv_block(kv, sequence, position);
  const std::int64_t pairs = static_cast<std::int64_t>(params.heads + 2 * kv.kv_heads) * half;
  for (std::int64_t at = row_rank() * step; at < pairs; at += row_threads() * step) {
    std::int32_t head = static_cast<std::int32_t>(at) / half;
    const std::int32_t i = static_cast<std::int32_t>(at) - head * half;
    if (head < params.heads) {
      float* x = params.query + token * params.query_token_stride + head * params.query_head_stride;
      turn(x, x, cos, half, i, quads);
      continue;
    }
    head -= params.heads;
    const bool of_key = head < kv.kv_heads;
    head -= of_key ? 0 : kv.kv_heads;
    const std::int64_t offset = kv_offset(kv, block, position, head);
    if (of_key) {
      turn(params.key + token * params.key_token_stride + head * params.key_head_stride,
           reinterpret_cast<Element*>(kv.keys + offset),
           cos,
           half,
           i,
           quads);
    } else {
      move(params.value + token * params.value_token_stride + head * params.value_head_stride,
           reinterpret_cast<Element*>(kv.values + offset),
           half,
           i,
           quads);
    }
  }
}

}  // namespace

HEDDLE_KERNEL(heddle_rope_append, RopeAppendParams, 256) {
  const std::int32_t sequence = sequence_of(params.batch, blockIdx.x);
  if (sequence == params.batch.sequences) {
    return;
  }
  if (params.kv.bf16 != 0) {
    append_token<std::uint16_t>(params, sequence);
  } else {
    append_token<float>(params, sequence);
  }
}

}  // namespace heddle::ops::cuda
