#include "ops/send.h"

#include <cstdint>

#include "base/check.h"

namespace heddle::ops {

void send(OpContext& context, const SendArgs& args) {
  constexpr std::size_t kWord = 4;
  HEDDLE_CHECK(reinterpret_cast<std::uintptr_t>(args.source) % kWord == 0);
  HEDDLE_CHECK(reinterpret_cast<std::uintptr_t>(args.target) % kWord == 0);
  HEDDLE_CHECK(args.bytes % kWord == 0);
  if (args.bytes == 0) {
    return;
  }
  if (context.kernels.send == nullptr || args.bytes > kSendByKernelMax) {
    context.stream.copy(args.target, args.source, args.bytes);
  } else {
    context.kernels.send(context.stream, args);
  }
}

}  // namespace heddle::ops
