#pragma once

#include "ops/cuda/kernels/linear_params.h"
#include "ops/linear.h"

namespace heddle::ops::cuda {

/// A product as kernels take it; `aligned` as LinearParams has it.
[[nodiscard]] inline LinearParams linear_params(const LinearArgs& args, bool aligned) {
  return {.x = args.x.data,
          .x_low = nullptr,
          .x_stride = args.x.stride[0] * dtype_size(args.x.dtype),
          .weight = args.weight.data,
          .scale = args.scale.as<float>(),
          .exponent = nullptr,
          .bias = args.bias.as<float>(),
          .residual = args.residual.as<float>(),
          .residual_stride = args.residual.stride[0],
          .out = args.out.data,
          .out_stride = args.out.stride[0],
          .tokens = static_cast<std::int32_t>(args.x.shape[0]),
          .outputs = static_cast<std::int32_t>(args.weight.shape[0]),
          .inputs = static_cast<std::int32_t>(args.weight.shape[1]),
          .aligned = aligned,
          .out_bf16 = args.out.dtype == DType::kBf16,
          .gated = false,
          .norm = {}};
}

}  // namespace heddle::ops::cuda
