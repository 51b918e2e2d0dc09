#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/calibration.h"
#include "sim/perf_model.h"
#include "twin/setup.h"

namespace heddle::lab {

/// What a device's measurements come to: step times are
///
///     t = fixed + flops_needed / flops + context_token * contexts
///         + prefill_token_pair * sum over chunks of (c p + c^2 / 2)
///
/// with flops_needed = 2 (n L P + rows V h), as in sim::gpu_time without its memory terms: what
/// a step takes however little there is to do is all in `fixed`.
struct DeviceFit {
  double fixed = 0;               ///< [s]
  double flops = 0;               ///< [1/s]; 1e18 where tokens cost nothing that is seen.
  double context_token = 0;       ///< [s]
  double prefill_token_pair = 0;  ///< [s]
  double map_page = 0;            ///< Mapping or unmapping a page, many at once [s].
  /// What a step of another engine adds to one that runs beside it, in parts of its own time
  /// (sim::GpuProfile::co_running); nothing where it was not measured.
  std::optional<double> co_running{};
  double error = 0;  ///< Root of the mean square of the relative errors of the samples.
};

/// Least squares on relative errors, with no term below zero (all subsets of the terms are tried).
/// Engines side by side count where equals do the same. At least one sample of a step.
[[nodiscard]] DeviceFit fit_device(const Calibration& measured);

/// What `heddle simulate` reads, by file name: gpus.yaml, models.yaml, engines.yaml, platforms.yaml
/// (for --perf), cluster.yaml (one server with one such device) and rules.yaml (for --models). What
/// is fixed in a step is the device's time, as an engine beside waits for it, too.
/// `name` is that of every entry: letters, digits, '-', '_' and '.'.
[[nodiscard]] std::map<std::string, std::string> simulator_files(const Calibration& measured,
                                                                 const DeviceFit& fit,
                                                                 const std::string& name);

/// Rows of tables for people, the head first: links and pages, steps and engines side by side with
/// what the fit says, and of GPUs what CUDA graphs are worth and operations by themselves.
[[nodiscard]] std::vector<std::vector<std::string>> link_table(const Calibration& measured);
[[nodiscard]] std::vector<std::vector<std::string>> unrecorded_table(const Calibration& measured);
[[nodiscard]] std::vector<std::vector<std::string>> op_table(const Calibration& measured);
[[nodiscard]] std::vector<std::vector<std::string>> step_table(const Calibration& measured,
                                                               const DeviceFit& fit);
[[nodiscard]] std::vector<std::vector<std::string>> co_run_table(const Calibration& measured,
                                                                 const DeviceFit& fit);

/// What the fit says that steps of such a model take.
[[nodiscard]] twin::StepTimes step_times(const DeviceFit& fit, const sim::ModelShape& shape);

/// What the fit says that a step takes [s].
[[nodiscard]] double predict(const DeviceFit& fit,
                             const sim::ModelShape& shape,
                             const StepSample& sample);

}  // namespace heddle::lab
