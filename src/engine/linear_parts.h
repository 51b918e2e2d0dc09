#pragma once

#include "engine/weights.h"
#include "ops/linear.h"

namespace heddle::engine {

/// A product whose matrix is in parts, of which each gives its columns. Only a matrix of one part
/// has scales.
inline void linear_parts(ops::OpContext& context,
                         const MatrixParts& parts,
                         const ops::LinearArgs& args) {
  std::int64_t row = 0;
  for (const ops::ConstTensorRef& part : parts) {
    ops::LinearArgs some = args;
    some.weight = part;
    some.out = ops::columns_of(args.out, row, part.shape[0]);
    if (args.bias.present()) {
      some.bias = ops::vector_of(args.bias.as<float>() + row, part.shape[0]);
    }
    ops::linear(context, some);
    row += part.shape[0];
  }
}

}  // namespace heddle::engine
