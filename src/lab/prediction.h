#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "bench/load.h"
#include "lab/constants.h"
#include "lab/experiment.h"
#include "lab/lab_file.h"

namespace heddle::lab {

/// What Experiment::run would find, by the same cores in virtual time (twin::Twin, or
/// twin::Cluster where the policy has hosts): takes
/// milliseconds, is the same each time, and knows of no busy machine. The same rows and counters,
/// so that reports need not know which it was. `seed` says where in a window of the planner's the
/// shots begin; `play` which of the runs this is that could have been: see played_again(), and the
/// planner looks at other moments of its period, as after another start. Errors as opening models
/// and configuring devices.
Result<LabRun> predict_run(const LabFile& lab,
                           const LabPolicy& policy,
                           std::int64_t seed,
                           const std::vector<bench::Shot>& shots,
                           const Constants& constants,
                           std::int64_t play = 0);

}  // namespace heddle::lab
