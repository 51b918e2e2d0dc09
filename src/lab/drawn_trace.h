#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "bench/load.h"

namespace heddle::lab {

/// Requests that are drawn: models with shares by Zipf's law, arrivals of each by a renewal process
/// with Gamma gaps, its rate going up and down in waves.
struct DrawnTrace {
  double rate = 0;       ///< Arrivals of all models, mean [1/s].
  Duration duration{};   ///< Nothing arrives later.
  double zipf = 0;       ///< The share of the model of rank r, from 1, goes with r^-zipf.
  double cv = 1;         ///< Of the gaps of one model; 1: Poisson.
  Duration period{};     ///< Of the waves; 0: rates are constant.
  double depth = 0;      ///< Part of the mean by which a rate goes down, 0 to 1.
  bool in_turn = false;  ///< Models peak one after the other, else all at once.
  /// Rates jump up and down: up for half of the period, in turn for the part of it that each of the
  /// models has. Else they go as a sine does.
  bool square = false;
  bench::TokenRange input{};
  bench::TokenRange output{};
};

/// The requests, by arrival; the same seed, the same requests. Shot::model is less than `models`.
[[nodiscard]] std::vector<bench::Shot> draw_trace(const DrawnTrace& trace,
                                                  std::size_t models,
                                                  std::uint64_t seed);

}  // namespace heddle::lab
