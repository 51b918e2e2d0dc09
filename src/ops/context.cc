#include "ops/context.h"

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd/choice.h"
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

Result<std::string> kernels_name(device::Kind kind) {
  if (kind != device::Kind::kCpu) {
    return std::string(kind == device::Kind::kCuda ? "cuda" : "none");
  }
  const auto simd = cpu::chosen_simd_kernels();
  if (!simd) {
    return simd.error();
  }
  return std::string((*simd)->name);
}

}  // namespace heddle::ops
