#include "ops/rope_append.h"

#include <algorithm>
#include <array>

#include "ops/bf16.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/kernels.h"
#include "ops/kv_row.h"

namespace heddle::ops::cpu {
namespace {

void put(float* place, float value) {
  *place = value;
}
void put(std::uint16_t* place, float value) {
  *place = to_bf16(value);
}

/// What an element is where a head of a token is codes with a scale.
struct Codes {};

/// A head's place in the cache.
struct Place {
  DType dtype{};
  std::byte* elements = nullptr;
  std::byte* scale = nullptr;  ///< Of codes.
};

/// Turns a head of 2 * half elements; `out` may be `x`.
template <class Element>
void turn(const float* x, const float* cos, const float* sin, std::int64_t half, Element* out) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    put(out + i, a * cos[i] - b * sin[i]);
    put(out + i + half, b * cos[i] + a * sin[i]);
  }
}

/// Writes a key, of which the first 2 * half elements are to be turned.
template <class Element>
void put_key(const float* key,
             const float* cos,
             const float* sin,
             std::int64_t half,
             std::int64_t head_dim,
             const Place& place) {
  auto* const out = reinterpret_cast<Element*>(place.elements);
  turn(key, cos, sin, half, out);
  for (std::int64_t i = 2 * half; i < head_dim; ++i) {
    put(out + i, key[i]);
  }
}
template <>
void put_key<Codes>(const float* key,
                    const float* cos,
                    const float* sin,
                    std::int64_t half,
                    std::int64_t head_dim,
                    const Place& place) {
  std::array<float, kHeadDimMax> turned{};
  put_key<float>(
      key, cos, sin, half, head_dim, {.elements = reinterpret_cast<std::byte*>(turned.data())});
  put_kv_row(place.dtype, turned.data(), head_dim, place.elements, place.scale);
}

template <class Element>
void put_value(const float* value, std::int64_t head_dim, const Place& place) {
  auto* const out = reinterpret_cast<Element*>(place.elements);
  for (std::int64_t i = 0; i < head_dim; ++i) {
    put(out + i, value[i]);
  }
}
template <>
void put_value<Codes>(const float* value, std::int64_t head_dim, const Place& place) {
  put_kv_row(place.dtype, value, head_dim, place.elements, place.scale);
}

template <class Element>
void append_token(const RopeAppendArgs& args, std::int64_t sequence, std::int64_t token) {
  const PagedKv& kv = args.kv;
  const std::int64_t half = args.cos_sin.shape[1] / 2;
  const float* const cos = args.cos_sin.as<float>() + token * args.cos_sin.stride[0];
  const float* const sin = cos + half;
  const auto head_of = [token](const auto& heads, std::int64_t head) {
    return heads.template as<float>() + token * heads.stride[0] + head * heads.stride[1];
  };
  for (std::int64_t head = 0; head < args.query.shape[1]; ++head) {
    float* const x = head_of(args.query, head);
    turn(x, cos, sin, half, x);
  }
  const std::int64_t position = args.rows.first_position.as<std::int32_t>()[sequence] + token -
                                args.rows.begin.as<std::int32_t>()[sequence];
  const std::int64_t block =
      kv.table.as<std::int32_t>()[sequence * kv.table.stride[0] + position / kv.block_tokens];
  const std::int64_t slot = position % kv.block_tokens;
  const auto place = [&](std::int64_t side_offset, std::int64_t head) {
    std::byte* const side = kv.base + block * kv.block_bytes + side_offset;
    return Place{.dtype = kv.dtype,
                 .elements = side + head * kv.head_stride() + slot * kv.token_stride(),
                 .scale = side + kv.scale_offset(head) + slot * PagedKv::kScaleBytes};
  };
  for (std::int64_t head = 0; head < kv.kv_heads; ++head) {
    put_key<Element>(
        head_of(args.key, head), cos, sin, half, kv.head_dim, place(kv.key_offset, head));
    put_value<Element>(head_of(args.value, head), kv.head_dim, place(kv.value_offset, head));
  }
}

}  // namespace

void rope_append(device::Stream& stream, const RopeAppendArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const auto* begin = args.rows.begin.as<std::int32_t>();
    const std::int64_t sequences = args.rows.sequences();
    const auto append = args.kv.scaled()                ? append_token<Codes>
                        : args.kv.dtype == DType::kBf16 ? append_token<std::uint16_t>
                                                        : append_token<float>;
    pool.parallel_for(begin[sequences], 1, [&](std::int64_t first, std::int64_t last, int) {
      std::int64_t s = std::upper_bound(begin, begin + sequences + 1, first) - begin - 1;
      for (std::int64_t token = first; token < last; ++token) {
        while (token >= begin[s + 1]) {
          ++s;
        }
        append(args, s, token);
      }
    });
  });
}

}  // namespace heddle::ops::cpu
