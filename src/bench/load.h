#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"

namespace heddle::bench {

/// One request to be sent.
struct Shot {
  Duration at{};  ///< After the start of the run. Closed loops do not look at it.
  std::size_t model = 0;
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
};

/// What is to be sent, in order of time.
class ShotSource {
 public:
  virtual ~ShotSource() = default;
  /// False when there is no more.
  virtual bool next(Shot& shot) = 0;
};

/// Inclusive bounds of numbers that are drawn uniformly.
struct TokenRange {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

/// Requests that are drawn: the same seed, the same requests.
struct DrawnLoad {
  std::vector<double> weights{};  ///< Of the models, by index; positive.
  TokenRange input{};
  TokenRange output{};
  double rate = 0;  ///< Mean number of (Poisson) arrivals a second; 0: all at once.
  std::uint64_t seed = 0;
};

/// An endless source of them.
[[nodiscard]] std::unique_ptr<ShotSource> draw_load(const DrawnLoad& load);

}  // namespace heddle::bench
