#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "history/traffic.h"
#include "sim/otlp_trace.h"

namespace heddle::cli {

/// How a trace is drawn from what a server remembers.
struct DrawOptions {
  std::uint64_t seed = 1;
  std::int64_t draws = 1;  ///< So often the whole history is drawn, one draw behind the other.
  Duration last{};         ///< Of the history, only so much at its end; 0: all.
};

/// Requests that might have been those of a history.
struct DrawnTrace {
  std::vector<sim::OtlpRow> rows{};     ///< By arrival.
  std::string origin{};                 ///< What they were drawn from, for people.
  std::vector<std::string> problems{};  ///< Models that are left out, and why.
};

/// Windows with requests that a history has at least, to say anything of a load.
inline constexpr std::size_t kLeastWindows = 12;

/// Draws requests: in each window as many of each model as came then, at times that are drawn
/// evenly from the window, with lengths drawn log-normally with the mean and the variance of those
/// that ended in it. Where none ended, the lengths are the model's in all windows. Windows of which
/// nothing is known have no requests. The same seed gives the same requests on every machine.
///
/// kInvalidArgument: fewer than kLeastWindows have requests, or no model's lengths are known.
Result<DrawnTrace> draw_trace(const history::TrafficHistory& history, const DrawOptions& options);

}  // namespace heddle::cli
