#pragma once

#include <cstdint>
#include <vector>

#include "base/time.h"

namespace heddle::sim {

/// How sure it is what part of a workload's requests is in time. Requests that come together fare
/// alike, so single ones tell less than they seem to: whole stretches of time are drawn again and
/// again instead (block bootstrap).
class AttainmentInterval {
 public:
  struct Bounds {
    double low = 0;
    double high = 1;
  };

  /// @param span  From the first moment that counts to the last arrival.
  AttainmentInterval(Instant begin, Duration span);

  /// A request has ended: whether it met its objectives.
  void add(Instant arrival, bool met);
  /// What another has counted of other requests of the same time.
  void add(const AttainmentInterval& other);
  /// Part of all that met theirs; 0 of none.
  [[nodiscard]] double attainment() const;
  /// Where it lies in 95 of 100 workloads that are made of such stretches. The same for the same
  /// requests.
  [[nodiscard]] Bounds bounds() const;

 private:
  struct Block {
    std::int64_t requests = 0;
    std::int64_t met = 0;
  };
  Instant begin_;
  Duration width_;
  std::vector<Block> blocks_;
};

}  // namespace heddle::sim
