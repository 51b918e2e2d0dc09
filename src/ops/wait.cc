#include "ops/wait.h"

#include "base/check.h"

namespace heddle::ops {

void wait(OpContext& context, const WaitArgs& args) {
  HEDDLE_CHECK(args.watermark != nullptr);
  context.kernels.wait(context.stream, args);
}

}  // namespace heddle::ops
