#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace heddle::sim {

/// Mean and percentiles of what was added.
struct Distribution {
  std::size_t count = 0;
  double mean = 0, p50 = 0, p95 = 0, p99 = 0, most = 0;
};

/// Quantiles of numbers >= 0 in bounded memory: exact while there are at most kExact of them; from
/// then on counted in buckets 1/128 wide, so that a quantile is at most 0.4 % off. The mean and the
/// greatest stay exact. Independent of the order of additions, but for the rounding of the mean.
/// Memory: 4 bytes a number up to kExact, then some tens of kB. add() is O(1), O(log buckets)
/// later.
class Quantiles {
 public:
  static constexpr std::size_t kExact = std::size_t{1} << 20U;

  void add(double value);
  /// All that another has.
  void add(const Quantiles& other);
  [[nodiscard]] std::size_t count() const { return count_; }
  /// The least number that is not below `part` of all of them, 0 <= part <= 1; 0 when there are
  /// none. The first call after an addition sorts.
  [[nodiscard]] double at(double part) const;
  [[nodiscard]] Distribution distribution() const;
  /// `points` >= 2 quantiles, evenly spaced in rank from the least to the greatest; none of none.
  [[nodiscard]] std::vector<float> curve(std::size_t points) const;

 private:
  void count_in_bucket(double value);

  mutable std::vector<float> exact_{};  ///< Empty once there are too many.
  mutable bool sorted_ = true;
  std::map<std::uint32_t, std::size_t> buckets_{};
  std::size_t count_ = 0;
  double sum_ = 0;
  double most_ = 0;
};

}  // namespace heddle::sim
