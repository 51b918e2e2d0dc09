#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "lab/co_running.h"
#include "lab/device_bench.h"
#include "lab/op_times.h"
#include "sim/perf_model.h"
#include "spec/model_spec.h"

namespace heddle::lab {

/// How long a step of some work took.
struct StepSample {
  std::int64_t tokens = 0;                  ///< Through the linear layers.
  std::int64_t rows = 0;                    ///< Sequences that got a token.
  std::int64_t context = 0;                 ///< Tokens that decodes attended to, all together.
  std::vector<sim::PrefillChunk> chunks{};  ///< Of prompts.
  double seconds = 0;
};

/// What mapping and unmapping so many pages at once took.
struct MapSample {
  std::int64_t pages = 0;
  double map = 0;    ///< [s]
  double unmap = 0;  ///< [s]
};

/// A decode step without its CUDA graph, beside the same one replayed.
struct UnrecordedSample {
  std::int64_t rows = 0;
  std::int64_t context = 0;  ///< Of each sequence.
  double seconds = 0;
  double recorded = 0;  ///< [s]
};

struct Calibration {
  spec::ModelSpec model{};
  std::uint64_t image_bytes = 0;
  std::uint64_t memory = 0;  ///< Of the device.
  std::uint64_t page_bytes = 0;
  double copy_alone = 0;     ///< Host to device, while the engine rests [bytes/s].
  double copy_decoding = 0;  ///< And while it decodes.
  std::vector<MapSample> maps{};
  std::vector<StepSample> steps{};
  /// Of engines side by side. Not measured by calibrate(), but with time_co_running().
  std::vector<CoRunSample> co_runs{};
  // Of GPUs alone; no fit uses them.
  std::vector<UnrecordedSample> unrecorded{};
  std::vector<OpSample> ops{};
};

/// Measures a device by what a worker's own executor does on it: copies of the model's image, the
/// mapping of pages, prefills and decode steps of several sizes; on a GPU larger ones, the same
/// decode steps without CUDA graphs, and operations by themselves. Uses the calling thread and
/// those of the device; of a GPU it takes the memory, and pins as much of the host's as the model
/// has. `progress` is told the part that is done. kResourceExhausted where the memory does not hold
/// the model twice and some KV; else what loading the checkpoint or making the device gives.
Result<Calibration> calibrate(const CalibrationOptions& options,
                              const std::function<void(double)>& progress);

}  // namespace heddle::lab
