#include "ops/context.h"

#include "ops/cpu/kernels.h"
#include "ops/cuda/kernels.h"

namespace heddle::ops {

const KernelTable* kernels_for(device::Kind kind) {
  switch (kind) {
    case device::Kind::kCpu:
      return &cpu::cpu_kernels();
    case device::Kind::kCuda:
      return &cuda::cuda_kernels();
    case device::Kind::kFake:
      break;
  }
  return nullptr;
}

}  // namespace heddle::ops
