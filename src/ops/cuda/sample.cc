#include "ops/sample.h"

#include "base/check.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/row_threads.h"
#include "ops/cuda/kernels/sample_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void sample(device::Stream& stream, const SampleArgs& args) {
  const std::int64_t vocab = args.logits.shape[1];
  HEDDLE_CHECK(vocab <= kRowTokensMax);
  const SampleParams params{.logits = args.logits.as<float>(),
                            .stride = args.logits.stride[0],
                            .vocab = static_cast<std::int32_t>(vocab),
                            .mask_stride = static_cast<std::int32_t>(mask_words(vocab)),
                            .rows = args.rows,
                            .masks = args.masks,
                            .tokens = args.tokens.as<std::int32_t>()};
  cuda_stream(stream).launch(kernel("heddle_sample"),
                             {.grid = {static_cast<std::uint32_t>(args.logits.shape[0]), 1, 1},
                              .block = {row_threads(vocab), 1, 1}},
                             params);
}

}  // namespace heddle::ops::cuda
