#include "ops/kv_append.h"

#include "ops/cuda/batch.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/kv_append_params.h"

namespace heddle::ops::cuda {

void kv_append(device::Stream& stream, const KvAppendArgs& args) {
  const std::int64_t tokens = args.key.shape[0];
  const std::int64_t elements = args.kv.kv_heads * args.kv.head_dim;
  const auto of_quads = [](const ConstTensorRef& heads) {
    return moves_by(4, heads.data, DType::kF32, heads.stride[0], heads.stride[1]);
  };
  const bool quads = of_quads(args.key) && of_quads(args.value) && kv_moves_by(4, args.kv);
  const KvAppendParams params{.batch = batch_params(args.rows, tokens),
                              .kv = paged_kv_params(args.kv),
                              .key = args.key.as<float>(),
                              .value = args.value.as<float>(),
                              .key_token_stride = args.key.stride[0],
                              .key_head_stride = args.key.stride[1],
                              .value_token_stride = args.value.stride[0],
                              .value_head_stride = args.value.stride[1],
                              .quads = quads};
  cuda_stream(stream).launch(
      kernel("heddle_kv_append"), shape_of_rows(tokens, quads ? elements / 4 : elements), params);
}

}  // namespace heddle::ops::cuda
