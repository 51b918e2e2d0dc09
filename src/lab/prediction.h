#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "bench/load.h"
#include "lab/calibration.h"
#include "lab/device_fit.h"
#include "lab/exchange_times.h"
#include "lab/experiment.h"
#include "lab/lab_file.h"

namespace heddle::lab {

/// What was measured of one kind of device with one model.
struct Measured {
  Calibration calibration{};
  DeviceFit fit{};
  ExchangeTimes exchange{};  ///< Of a sharded model.
};

/// The constants of an experiment's devices, by model name: of its first device, which the others
/// are taken to be like, without its pace. Their links and paces are their own.
using Constants = std::map<std::string, Measured>;

/// Measures them as `heddle calibrate` does, on this thread and on the cores of the device.
/// `progress` is told the part that is done. Errors as calibrate().
Result<Constants> measure_constants(const LabFile& lab,
                                    const std::function<void(double)>& progress);

/// What Experiment::run would find, by the same cores in virtual time (twin::Twin): takes
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
