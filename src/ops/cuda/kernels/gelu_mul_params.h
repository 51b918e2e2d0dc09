#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// heddle_gelu_mul: block x makes row x of `out`, together with the others of that x.
struct GeluMulParams {
  const void* gate_up;  ///< [tokens, 2 n]
  void* out;            ///< [tokens, n]
  std::int64_t gate_up_stride;
  std::int64_t out_stride;
  std::int64_t n;
  std::int32_t bf16;       ///< The type of `out`; 0: float32.
  std::int32_t from_bf16;  ///< The type of `gate_up`, and then of `out`.
  std::int32_t quads;      ///< Rows are aligned on both sides and n a multiple of four.
};

}  // namespace heddle::ops::cuda
