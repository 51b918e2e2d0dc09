#include "ops/send.h"

#include "ops/cuda/kernels.h"
#include "ops/cuda/kernels/send_params.h"
#include "ops/cuda/launch.h"

namespace heddle::ops::cuda {

void send(device::Stream& stream, const SendArgs& args) {
  constexpr std::uintptr_t kQuadBytes = 16;
  const auto is_quad = [](const std::byte* at) {
    return reinterpret_cast<std::uintptr_t>(at) % kQuadBytes == 0;
  };
  const bool quads = is_quad(args.source) && is_quad(args.target) && args.bytes % kQuadBytes == 0;
  const SendParams params{.source = args.source,
                          .target = args.target,
                          .items = static_cast<std::int64_t>(args.bytes / (quads ? kQuadBytes : 4)),
                          .quads = quads};
  cuda_stream(stream).launch(kernel("heddle_send"), shape_of_rows(1, params.items), params);
}

}  // namespace heddle::ops::cuda
