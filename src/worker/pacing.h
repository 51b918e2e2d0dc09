#pragma once

#include "base/time.h"
#include "policy/batching.h"
#include "rpc/messages.h"

namespace heddle::worker {

/// Makes the steps of a scale model as slow as those of what it stands for. Engine thread.
class Pacing {
 public:
  explicit Pacing(rpc::Pace pace) : pace_(pace) {}

  /// How long this step has to take; zero where nothing is paced.
  [[nodiscard]] Duration of(const policy::StepPlan& plan) const;
  /// Waits until the step that began then has taken that long; gives what it took in the end. What
  /// was late is counted in `stats` and logged; a step that `waits` for weights is not late for
  /// that.
  Duration keep(const policy::StepPlan& plan,
                Instant began,
                bool waits,
                rpc::WorkerStats& stats) const;

 private:
  rpc::Pace pace_;
};

}  // namespace heddle::worker
