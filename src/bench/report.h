#pragma once

#include <string>
#include <vector>

#include "bench/results.h"

namespace heddle::bench {

/// What a report says of how it came about: "concurrency 16", "seed 7".
using Circumstances = std::vector<std::pair<std::string, std::string>>;

/// Rows of a table for people, the head first: one for each model, one for all where there are
/// several. Times in milliseconds.
[[nodiscard]] std::vector<std::vector<std::string>> report_table(const Results& results);

/// What else people should know, a line each: the generator's lateness, and what failed how often.
[[nodiscard]] std::vector<std::string> report_notes(const Results& results);

/// All numbers, for programs; with a row for each request. Times in seconds.
[[nodiscard]] std::string report_json(const Results& results, const Circumstances& circumstances);

/// One self-contained page with pictures, light or dark as the reader's machine is.
[[nodiscard]] std::string report_html(const Results& results, const Circumstances& circumstances);

}  // namespace heddle::bench
