#include "ops/penalties.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/penalties_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void penalties(device::Stream& stream, const PenaltiesArgs& args) {
  const PenaltiesParams params{.logits = args.logits.as<float>(),
                               .stride = args.logits.stride[0],
                               .rows = args.rows,
                               .uses = args.uses};
  cuda_stream(stream).launch(kernel("heddle_penalties"),
                             {.grid = {static_cast<std::uint32_t>(args.logits.shape[0]), 1, 1},
                              .block = {kPenaltiesThreads, 1, 1}},
                             params);
}

}  // namespace heddle::ops::cuda
