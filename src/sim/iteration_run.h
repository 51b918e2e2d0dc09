#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/time.h"

namespace heddle::sim {

/// Iterations of an engine in which nothing changes but that every sequence gets longer, so that
/// each takes the larger of a few linear functions of its number. Their sum has a closed form: any
/// number of iterations costs the same to advance as one, to the very nanosecond.
///
///     duration of iteration k = floor(max_j(base_j + growth_j k) / 1000) + constant   [ns]
class IterationRun {
 public:
  /// Adds base + growth*k [ps] to what the maximum is taken of; both >= 0; at most three lines.
  void add_line(std::int64_t base_ps, std::int64_t growth_ps);
  void set_constant(Duration constant) { constant_ = constant.count(); }

  /// How long iterations 0 .. count-1 take together. O(log).
  [[nodiscard]] Duration sum(std::int64_t count) const;
  /// How long iteration `k` takes.
  [[nodiscard]] Duration at(std::int64_t k) const;
  /// Drops the first `count` iterations: what was iteration `count` is number 0.
  void skip(std::int64_t count);
  /// The least number of iterations, at least 1 and at most `most`, that take `time` or longer.
  [[nodiscard]] std::int64_t count_until(Duration time, std::int64_t most) const;

 private:
  struct Line {
    std::int64_t base = 0;
    std::int64_t growth = 0;
    [[nodiscard]] std::int64_t at(std::int64_t k) const { return base + growth * k; }
  };

  [[nodiscard]] std::size_t largest_at(std::int64_t k) const;
  [[nodiscard]] std::int64_t leads_until(std::size_t line, std::int64_t from) const;

  std::array<Line, 3> lines_{};
  std::size_t count_ = 0;
  std::int64_t constant_ = 0;
};

/// The sum over i = 0 .. n-1 of floor((a*i + b) / m), for n, a, b >= 0 and m > 0, in O(log m).
[[nodiscard]] std::int64_t floor_sum(std::int64_t n,
                                     std::int64_t m,
                                     std::int64_t a,
                                     std::int64_t b);

}  // namespace heddle::sim
