#include "ops/log_probs.h"

#include "base/check.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/log_probs_params.h"
#include "ops/cuda/kernels/row_threads.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void log_probs(device::Stream& stream, const LogProbsArgs& args) {
  const std::int64_t vocab = args.logits.shape[1];
  HEDDLE_CHECK(vocab <= kRowTokensMax);
  const LogProbsParams params{.logits = args.logits.as<float>(),
                              .stride = args.logits.stride[0],
                              .vocab = static_cast<std::int32_t>(vocab),
                              .rows = args.rows,
                              .choices = args.choices.as<std::int32_t>(),
                              .tokens = args.tokens,
                              .log_probs = args.log_probs};
  cuda_stream(stream).launch(kernel("heddle_log_probs"),
                             {.grid = {static_cast<std::uint32_t>(args.logits.shape[0]), 1, 1},
                              .block = {row_threads(vocab), 1, 1}},
                             params);
}

}  // namespace heddle::ops::cuda
