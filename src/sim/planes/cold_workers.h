#pragma once

#include <cstdint>

namespace heddle::sim {

/// Cold starts that a model wants (HydraServe, where it chooses between scaling down and up; worker
/// = an instance that may begin as one stage of a pipeline group).
struct WorkerDemand {
  std::int64_t queued = 0;
  /// Arrivals of the last window: the most that are expected in the next one. Dividing what is
  /// expected by the batch size is ours.
  std::int64_t predicted = 0;
  std::int64_t batch = 8;    ///< Requests that one worker runs at once.
  std::int64_t workers = 0;  ///< Running or starting.
  std::int64_t stages = 1;   ///< That the SLO of a cold start asks for, at least.
};

/// Members of the groups to start; after the first token `workers` of them become standalone.
struct WorkerPlan {
  std::int64_t workers = 0;  ///< New ones wanted; 0: start nothing.
  std::int64_t groups = 0;
  std::int64_t stages = 1;  ///< Of each group.
  friend bool operator==(const WorkerPlan&, const WorkerPlan&) = default;
};

inline constexpr std::int64_t kGroupWorkers = 4;  ///< HydraServe's groups have no more members.

enum class WorkerVariant : std::uint8_t {
  kCorrected,  ///< ceil((queued + predicted) / B) less what there is.
  kArtifact,   ///< The code computes the prediction and does not use it.
};

/// workers = ceil((queued + predicted) / B) - workers there; groups of at most 4 and at least as
/// deep as the SLO asks.
[[nodiscard]] WorkerPlan choose_workers(const WorkerDemand& demand, WorkerVariant variant);

}  // namespace heddle::sim
