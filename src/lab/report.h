#pragma once

#include <string>
#include <vector>

#include "lab/lab_file.h"
#include "lab/summary.h"

namespace heddle::lab {

/// Rows of a table for people, the head first: a column for each policy, with means over its seeds
/// and half of their 95 % intervals.
[[nodiscard]] std::vector<std::vector<std::string>> figure_table(
    const std::vector<PolicySummary>& policies);

/// Likewise how each policy did against the first, with 95 % intervals: ratios of times and counts,
/// differences of parts. Empty where there is one policy.
[[nodiscard]] std::vector<std::vector<std::string>> comparison_table(
    const std::vector<PolicySummary>& policies);

/// Rows of a table for people, the head first: for each policy what was measured, what was
/// predicted, and the one to the other (a difference of parts), of all requests together. Both are
/// of the same policies, in the same order.
[[nodiscard]] std::vector<std::vector<std::string>> prediction_table(
    const std::vector<PolicySummary>& measured, const std::vector<PolicySummary>& predicted);

/// What else people should know, a line each: runs that are invalid, and what failed how often, the
/// most frequent failures of each policy.
[[nodiscard]] std::vector<std::string> report_notes(const std::vector<PolicySummary>& policies);

/// All numbers, for machines: of each run, of each policy, of policies against the first one, and
/// the simulator's report of the same runs as "report". `command` makes the report again.
[[nodiscard]] std::string report_json(const LabFile& lab,
                                      const std::vector<PolicySummary>& policies,
                                      const std::string& command);

/// The simulator's page, with the runs of a policy one after the other as one run.
[[nodiscard]] std::string report_html(const LabFile& lab,
                                      const std::vector<PolicySummary>& policies,
                                      const std::string& command);

/// A row for each request, as the simulator writes them, after the columns policy and seed.
[[nodiscard]] std::string report_csv(const LabFile& lab,
                                     const std::vector<PolicySummary>& policies);

}  // namespace heddle::lab
