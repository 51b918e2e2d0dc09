#include "ops/rope_append.h"

#include "ops/cuda/batch.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/rope_append_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void rope_append(device::Stream& stream, const RopeAppendArgs& args) {
  const std::int64_t tokens = args.key.shape[0];
  const std::int64_t half = args.kv.head_dim / 2;
  const std::int64_t queries = args.query.present() ? args.query.shape[1] : 0;
  const std::int64_t heads = queries + 2 * args.kv.kv_heads;
  const auto of_quads = [](const ConstTensorRef& of) {
    return moves_by(4, of.data, of.dtype, of.stride[0], of.stride[1]);
  };
  const std::int64_t rotary = args.cos_sin.shape[1];
  const bool quads = half % 4 == 0 && rotary / 2 % 4 == 0 && of_quads(args.query) &&
                     of_quads(args.key) && of_quads(args.value) && kv_moves_by(4, args.kv) &&
                     moves_by(4, args.cos_sin.data, DType::kF32, args.cos_sin.stride[0]);
  const RopeAppendParams params{.batch = batch_params(args.rows, tokens),
                                .kv = paged_kv_params(args.kv),
                                .cos_sin = args.cos_sin.as<float>(),
                                .query = args.query.data,
                                .key = args.key.data,
                                .value = args.value.data,
                                .cos_sin_stride = args.cos_sin.stride[0],
                                .query_token_stride = args.query.stride[0],
                                .query_head_stride = args.query.stride[1],
                                .key_token_stride = args.key.stride[0],
                                .key_head_stride = args.key.stride[1],
                                .value_token_stride = args.value.stride[0],
                                .value_head_stride = args.value.stride[1],
                                .query_norm = args.query_norm.as<float>(),
                                .key_norm = args.key_norm.as<float>(),
                                .eps = args.eps,
                                .rotary = static_cast<std::int32_t>(rotary),
                                .heads = static_cast<std::int32_t>(queries),
                                .quads = quads,
                                .from_bf16 = args.key.dtype == DType::kBf16};
  // A thread for each pair, or a warp for each head.
  const std::int64_t items =
      args.key_norm.present() || args.kv.scaled() ? heads * 32 : heads * (quads ? half / 4 : half);
  const char* const name = args.kv.scaled() ? "heddle_rope_append_codes" : "heddle_rope_append";
  cuda_stream(stream).launch(kernel(name), shape_of_rows(tokens, items), params);
}

}  // namespace heddle::ops::cuda
