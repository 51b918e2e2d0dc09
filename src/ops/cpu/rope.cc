#include "ops/rope.h"

#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {

namespace {

void rotate(float* x, const float* cos, const float* sin, std::int64_t half) {
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

}  // namespace

void rope(device::Stream& stream, const RopeArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool& pool) {
    const std::int64_t half = args.heads.shape[2] / 2;
    const std::int64_t heads = args.heads.shape[1];
    pool.parallel_for(args.heads.shape[0], 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin * heads; i < end * heads; ++i) {
        const std::int64_t token = i / heads;
        const float* cos = args.cos_sin.as<float>() + token * args.cos_sin.stride[0];
        rotate(args.heads.as<float>() + token * args.heads.stride[0] +
                   i % heads * args.heads.stride[1],
               cos,
               cos + half,
               half);
      }
    });
  });
}

}  // namespace heddle::ops::cpu
