#include "ops/cuda/kernels/batch.cuh"
#include "ops/cuda/kernels/elements.cuh"
#include "ops/cuda/kernels/kv_append_params.h"

namespace heddle::ops::cuda {
namespace {

template <class Element>
__device__ __forceinline__ void write(std::byte* place,
                                      std::int32_t i,
                                      const float* source,
                                      bool quads) {
  auto* out = reinterpret_cast<Element*>(place);
  if (quads) {
    store_quad(out, i, load_quad(source, i));
  } else {
    store_element(out, i, source[i]);
  }
}

template <class Element>
__device__ void append_token(const KvAppendParams& params, std::int32_t sequence) {
  const PagedKvParams& kv = params.kv;
  const std::int64_t token = blockIdx.x;
  const bool quads = params.quads != 0;
  const std::int32_t step = quads ? kQuad : 1;
  const std::int32_t position = params.batch.first_position[sequence] +
                                static_cast<std::int32_t>(token) - params.batch.begin[sequence];
  const std::int32_t block = kv_block(kv, sequence, position);
  const std::int64_t elements = static_cast<std::int64_t>(kv.kv_heads) * kv.head_dim;
  for (std::int64_t at = row_rank() * step; at < elements; at += row_threads() * step) {
    const auto head = static_cast<std::int32_t>(at) / kv.head_dim;
    const auto i = static_cast<std::int32_t>(at) - head * kv.head_dim;
    const std::int64_t offset = kv_offset(kv, block, position, head);
    write<Element>(kv.keys + offset,
                   i,
                   params.key + token * params.key_token_stride + head * params.key_head_stride,
                   quads);
    write<Element>(
        kv.values + offset,
        i,
        params.value + token * params.value_token_stride + head * params.value_head_stride,
        quads);
  }
}

}  // namespace

HEDDLE_KERNEL(heddle_kv_append, KvAppendParams, 256) {
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
