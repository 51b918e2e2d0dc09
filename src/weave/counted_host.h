#pragma once

#include <cstdint>

#include "base/time.h"
#include "ops/guest_attention.h"

namespace heddle::weave {

/// What became of the layers of steps with guests so far.
struct LayerCounts {
  std::uint64_t answered = 0;    ///< By the host.
  std::uint64_t unanswered = 0;  ///< By nobody, or not asked for: computed by the hot side.
  /// In answered layers, the wait for the host, and the time from posting to waiting, in which this
  /// side does its own part. Only clients of CPUs measure them: on GPUs no thread is at it.
  Duration waited{};
  Duration own{};
};

/// A host that a hot engine asks, and that is counted.
class CountedHost : public ops::AttentionHost {
 public:
  /// The thread that enqueues steps.
  [[nodiscard]] virtual LayerCounts counts() const = 0;
};

}  // namespace heddle::weave
