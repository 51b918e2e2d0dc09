#include "sim/planes/cold_workers.h"

#include <algorithm>

#include "base/check.h"
#include "base/div_up.h"

namespace heddle::sim {

WorkerPlan choose_workers(const WorkerDemand& demand, WorkerVariant variant) {
  HEDDLE_CHECK(demand.batch > 0 && demand.stages > 0);
  const std::int64_t predicted = variant == WorkerVariant::kCorrected ? demand.predicted : 0;
  const std::int64_t need = div_up(demand.queued + predicted, demand.batch) - demand.workers;
  if (need <= 0) {
    return {};
  }
  return {.workers = need,
          .groups = div_up(need, kGroupWorkers),
          .stages = std::max(demand.stages, std::min(need, kGroupWorkers))};
}

}  // namespace heddle::sim
