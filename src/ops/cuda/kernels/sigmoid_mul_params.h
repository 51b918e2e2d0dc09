#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// heddle_sigmoid_mul: block x does row x, together with the others of that x.
struct SigmoidMulParams {
  const void* gate;  ///< [tokens, n]
  void* rows;        ///< [tokens, n]
  std::int64_t gate_stride;
  std::int64_t rows_stride;
  std::int64_t n;
  std::int32_t bf16;       ///< The type of `rows`; 0: float32.
  std::int32_t gate_bf16;  ///< The type of `gate`, and then of `rows`.
  std::int32_t quads;      ///< Rows are aligned on both sides and n a multiple of four.
};

}  // namespace heddle::ops::cuda
