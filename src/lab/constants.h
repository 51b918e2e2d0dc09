#pragma once

#include <functional>
#include <map>
#include <string>

#include "base/result.h"
#include "lab/calibration.h"
#include "lab/device_fit.h"
#include "lab/engine_times.h"
#include "lab/exchange_times.h"
#include "lab/lab_file.h"

namespace heddle::lab {

/// What was measured of one kind of device with one model.
struct Measured {
  Calibration calibration{};
  DeviceFit fit{};
  ExchangeTimes exchange{};  ///< Of a sharded model.
  EngineTimes engine{};      ///< Of a model that an external engine serves, and then nothing else.
};

/// The constants of an experiment's devices, by model name: of its first device, which the others
/// are taken to be like, without its pace. Their links and paces are their own. Of external engines
/// what the experiment says of them, or what they are found to do.
using Constants = std::map<std::string, Measured>;

/// Measures them as `heddle calibrate` does, on this thread and on the cores of the device.
/// `progress` is told the part that is done. Errors as calibrate(), and time_engine().
Result<Constants> measure_constants(const LabFile& lab,
                                    const std::function<void(double)>& progress);

}  // namespace heddle::lab
