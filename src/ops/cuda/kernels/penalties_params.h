#pragma once

#include <cstdint>

#include "ops/penalty_row.h"

namespace heddle::ops::cuda {

/// Threads of a block of heddle_penalties.
constexpr std::uint32_t kPenaltiesThreads = 128;

/// Of heddle_penalties: one block per row, its threads go through the row's uses.
struct PenaltiesParams {
  float* logits = nullptr;  ///< [rows], `stride` apart.
  std::int64_t stride = 0;
  const PenaltyRow* rows = nullptr;
  const TokenUse* uses = nullptr;
};

}  // namespace heddle::ops::cuda
