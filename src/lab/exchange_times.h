#pragma once

#include <cstdint>

#include "base/result.h"
#include "twin/setup.h"

namespace heddle::lab {

/// What the ranks of a model that is sharded over devices take to exchange data.
struct ExchangeTimes {
  std::int64_t ranks = 1;
  double meet = 0;    ///< Once, however little it is [s].
  double number = 0;  ///< For each float that is summed or gathered [s].
};

/// Measures sums over a group of as many threads as there are ranks, as workers exchange them
/// through shared memory. `ranks` >= 2. Errors as making the memory.
Result<ExchangeTimes> time_exchanges(std::int64_t ranks);

/// What a step of such a model takes with what is exchanged in it: hidden states 2 `layers` + 1
/// times, logits of each row that samples, and twice that all agree (contracts/engine.md, Shards).
/// `step` is what a rank computes.
[[nodiscard]] twin::StepTimes with_exchanges(twin::StepTimes step,
                                             const ExchangeTimes& times,
                                             std::int64_t layers,
                                             std::int64_t hidden,
                                             std::int64_t vocab);

}  // namespace heddle::lab
