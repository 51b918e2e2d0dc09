#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "sim/perf_model.h"
#include "sim/simulated_engine.h"

namespace heddle::sim {

/// Kernels of one decode step that takes `step` of the GPU: of each layer four products and the
/// small ones between them, then the head. The products share the time by the bytes of their
/// weights, which is what bounds them in decode. Empty where `step` is zero.
[[nodiscard]] std::vector<Duration> step_kernels(const ModelShape& shape, Duration step);

/// What guests meet on their host (WEAVER, section 4.2). heddle's guests are first positions that
/// moved: new keys and values stay at home, and the host serves them without polls and pieces.
struct GuestPair {
  const ModelShape& hot;
  Duration hot_step{};          ///< One iteration of the hot engine.
  Duration home{};              ///< K: attention at home, one layer.
  Duration away{};              ///< N: attention over the guests and the transfer, one layer.
  double link = 0;              ///< Between the devices [bytes/s].
  std::int64_t context_ps = 0;  ///< GuestCost::context_ps, of the host's GPU.
  Duration poll{};              ///< One look of the host at its guests' counters.
  std::span<const Duration> kernels{};  ///< Of one step of the models that run on the host.
  bool split = true;                    ///< Long ones may be split (Algorithm 1).
  bool first_positions = false;         ///< heddle's guests.
};

struct GuestTimes {
  GuestCost hot{};           ///< For the hot engine.
  Duration host_overhead{};  ///< A step of the host takes so much longer: a look after each kernel,
                             ///< and pieces. Zero for first positions.
};

/// The wait for the host's kernels and what the host pays for being interruptible.
[[nodiscard]] GuestTimes guest_times(const GuestPair& pair);

}  // namespace heddle::sim
