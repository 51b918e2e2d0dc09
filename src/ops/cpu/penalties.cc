#include "ops/penalties.h"

#include "ops/cpu/kernels.h"

namespace heddle::ops::cpu {
namespace {

float penalised(float x, const TokenUse& use, const PenaltyRow& row) {
  x = x + use.bias;
  if (use.seen != 0) {
    x = x > 0.0F ? x / row.repetition : x * row.repetition;
  }
  if (use.generated > 0) {
    x = x - row.presence;
    x = x - row.frequency * static_cast<float>(use.generated);
  }
  return x;
}

}  // namespace

void penalties(device::Stream& stream, const PenaltiesArgs& args) {
  cpu_stream(stream).enqueue([args](device::ThreadPool&) {
    for (std::int64_t r = 0; r < args.logits.shape[0]; ++r) {
      const PenaltyRow& row = args.rows[r];
      float* logits = args.logits.as<float>() + r * args.logits.stride[0];
      for (std::int32_t i = row.begin; i < row.end; ++i) {
        const TokenUse& use = args.uses[i];
        logits[use.token] = penalised(logits[use.token], use, row);
      }
    }
  });
}

}  // namespace heddle::ops::cpu
