#include "ops/kv_append.h"

#include <algorithm>
#include <cstring>

#include "ops/bf16.h"
#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {
namespace {

void write_head(const float* source, std::int64_t n, DType dtype, std::byte* target) {
  if (dtype == DType::kF32) {
    std::memcpy(target, source, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  auto* out = reinterpret_cast<std::uint16_t*>(target);
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = to_bf16(source[i]);
  }
}

void append_token(const KvAppendArgs& args, std::int64_t sequence, std::int64_t token) {
  const PagedKv& kv = args.kv;
  const std::int64_t position = args.rows.first_position.as<std::int32_t>()[sequence] + token -
                                args.rows.begin.as<std::int32_t>()[sequence];
  const std::int64_t block =
      kv.table.as<std::int32_t>()[sequence * kv.table.stride[0] + position / kv.block_tokens];
  std::byte* slot =
      kv.base + block * kv.block_bytes + position % kv.block_tokens * kv.token_stride();
  for (std::int64_t head = 0; head < kv.kv_heads; ++head) {
    std::byte* place = slot + head * kv.block_tokens * kv.token_stride();
    const auto source = [&](const ConstTensorRef& heads) {
      return heads.as<float>() + token * heads.stride[0] + head * heads.stride[1];
    };
    write_head(source(args.key), kv.head_dim, kv.dtype, place + kv.key_offset);
    write_head(source(args.value), kv.head_dim, kv.dtype, place + kv.value_offset);
  }
}

}  // namespace

void kv_append(device::Stream& stream, const KvAppendArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const auto* begin = args.rows.begin.as<std::int32_t>();
    const std::int64_t sequences = args.rows.sequences();
    pool.parallel_for(begin[sequences], 1, [&](std::int64_t first, std::int64_t last, int) {
      std::int64_t s = std::upper_bound(begin, begin + sequences + 1, first) - begin - 1;
      for (std::int64_t token = first; token < last; ++token) {
        while (token >= begin[s + 1]) {
          ++s;
        }
        append_token(args, s, token);
      }
    });
  });
}

}  // namespace heddle::ops::cpu
