#include "ops/rope_append.h"

#include <algorithm>

#include "ops/bf16.h"
#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {
namespace {

void put(float* place, float value) {
  *place = value;
}
void put(std::uint16_t* place, float value) {
  *place = to_bf16(value);
}

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
  std::byte* const slot =
      kv.base + block * kv.block_bytes + position % kv.block_tokens * kv.token_stride();
  for (std::int64_t head = 0; head < kv.kv_heads; ++head) {
    std::byte* const place = slot + head * kv.block_tokens * kv.token_stride();
    const float* const key = head_of(args.key, head);
    auto* const turned = reinterpret_cast<Element*>(place + kv.key_offset);
    turn(key, cos, sin, half, turned);
    for (std::int64_t i = 2 * half; i < kv.head_dim; ++i) {
      put(turned + i, key[i]);
    }
    const float* const value = head_of(args.value, head);
    auto* const out = reinterpret_cast<Element*>(place + kv.value_offset);
    for (std::int64_t i = 0; i < kv.head_dim; ++i) {
      put(out + i, value[i]);
    }
  }
}

}  // namespace

void rope_append(device::Stream& stream, const RopeAppendArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const auto* begin = args.rows.begin.as<std::int32_t>();
    const std::int64_t sequences = args.rows.sequences();
    const bool bf16 = args.kv.dtype == DType::kBf16;
    pool.parallel_for(begin[sequences], 1, [&](std::int64_t first, std::int64_t last, int) {
      std::int64_t s = std::upper_bound(begin, begin + sequences + 1, first) - begin - 1;
      for (std::int64_t token = first; token < last; ++token) {
        while (token >= begin[s + 1]) {
          ++s;
        }
        (bf16 ? append_token<std::uint16_t> : append_token<float>)(args, s, token);
      }
    });
  });
}

}  // namespace heddle::ops::cpu
