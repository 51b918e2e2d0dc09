#pragma once

#include <string>
#include <vector>

#include "sim/request_row.h"
#include "sim/results.h"

namespace heddle::sim {

/// One policy set on one workload, as reports show it.
struct Run {
  std::string policy{};  ///< With its flags.
  double requests_per_second = 0;
  const Results* results = nullptr;
};

/// A table that whoever makes a report puts below its own, the first row being the head.
struct ReportTable {
  std::string title{};
  std::vector<std::vector<std::string>> rows{};
};

/// What all runs of a report have in common.
struct ReportHead {
  std::string title{};
  std::string workload{};
  std::string cluster{};
  std::string command{};                ///< That makes the report again.
  std::vector<std::string> models{};    ///< Names, by id.
  std::vector<Objective> objectives{};  ///< By id.
  std::vector<std::string> problems{};  ///< Of the input.
  std::vector<ReportTable> tables{};    ///< Shown by report_html() only.
};

/// Rows of a table, the first its head: one column per run, or one row per run where these are
/// many. What a terminal shows.
[[nodiscard]] std::vector<std::vector<std::string>> report_table(const std::vector<Run>& runs);

/// All numbers, for machines. The same bytes for the same runs.
[[nodiscard]] std::string report_json(const ReportHead& head, const std::vector<Run>& runs);

/// One page with pictures, self-contained: no script, no style or font from elsewhere.
[[nodiscard]] std::string report_html(const ReportHead& head, const std::vector<Run>& runs);

/// The head of a file with one row per request, and a row of it.
[[nodiscard]] std::string csv_head();
[[nodiscard]] std::string csv_row(const RequestRow& row, const std::string& model);

/// Seconds with three significant digits: "0.0123", "4.56", "789".
[[nodiscard]] std::string format_seconds(double seconds);

}  // namespace heddle::sim
