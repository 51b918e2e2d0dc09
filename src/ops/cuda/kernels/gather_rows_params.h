#pragma once

#include <cstdint>

namespace heddle::ops::cuda {

/// heddle_gather_rows: block x makes row x of `out`, together with the others of that x.
struct GatherRowsParams {
  const void* table;  ///< [entries, columns]
  const std::int32_t* rows;
  float* out;
  std::int64_t out_stride;
  std::int64_t first;
  std::int64_t entries;
  std::int64_t columns;
  std::int32_t bf16;   ///< The table's type; 0: float32.
  std::int32_t quads;  ///< Rows are aligned on both sides and columns a multiple of four.
};

}  // namespace heddle::ops::cuda
