#include "ops/context.h"

#include "ops/cpu/kernels.h"

namespace heddle::ops {

const KernelTable* kernels_for(device::Kind kind) {
  return kind == device::Kind::kCpu ? &cpu::cpu_kernels() : nullptr;
}

}  // namespace heddle::ops
