#pragma once

#include <map>
#include <string>
#include <vector>

#include "lab/calibration.h"
#include "policy/perf_model.h"
#include "twin/setup.h"

namespace heddle::lab {

/// What a device's measurements come to: step times are
///
///     t = fixed + flops_needed / flops + context_token * contexts
///         + prefill_token_pair * sum over chunks of (c p + c^2 / 2)
///
/// with flops_needed = 2 (n L P + rows V h), as in policy::gpu_time without its memory terms: what
/// a step takes however little there is to do is all in `fixed`.
struct DeviceFit {
  double fixed = 0;               ///< [s]
  double flops = 0;               ///< [1/s]; 1e18 where tokens cost nothing that is seen.
  double context_token = 0;       ///< [s]
  double prefill_token_pair = 0;  ///< [s]
  double map_page = 0;            ///< Mapping or unmapping a page, many at once [s].
  double error = 0;  ///< Root of the mean square of the relative errors of the samples.
};

/// Least squares on relative errors, with no term below zero (all subsets of the terms are tried).
/// At least one sample.
[[nodiscard]] DeviceFit fit_device(const Calibration& measured);

/// The dimensions that step times depend on.
[[nodiscard]] policy::ModelShape shape_of(const spec::ModelSpec& model);

/// What `heddle simulate` reads, by file name: gpus.yaml, models.yaml, engines.yaml, platforms.yaml
/// (for --perf), cluster.yaml (one server with one such device) and rules.yaml (for --models).
/// `name` is that of every entry: letters, digits, '-', '_' and '.'.
[[nodiscard]] std::map<std::string, std::string> simulator_files(const Calibration& measured,
                                                                 const DeviceFit& fit,
                                                                 const std::string& name);

/// Rows of tables for people, the head first: links and pages, steps with what the fit says, and of
/// GPUs what recordings are worth and operations by themselves.
[[nodiscard]] std::vector<std::vector<std::string>> link_table(const Calibration& measured);
[[nodiscard]] std::vector<std::vector<std::string>> unrecorded_table(const Calibration& measured);
[[nodiscard]] std::vector<std::vector<std::string>> op_table(const Calibration& measured);
[[nodiscard]] std::vector<std::vector<std::string>> step_table(const Calibration& measured,
                                                               const DeviceFit& fit);

/// What the fit says that steps of such a model take.
[[nodiscard]] twin::StepTimes step_times(const DeviceFit& fit, const policy::ModelShape& shape);

/// What the fit says that a step takes [s].
[[nodiscard]] double predict(const DeviceFit& fit,
                             const policy::ModelShape& shape,
                             const StepSample& sample);

}  // namespace heddle::lab
