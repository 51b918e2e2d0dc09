#include "lab/answers.h"

#include <map>
#include <tuple>

namespace heddle::lab {
namespace {

using Request = std::tuple<std::int64_t, Duration, std::size_t>;

std::map<Request, std::uint64_t> digests(const PolicySummary& policy) {
  std::map<Request, std::uint64_t> all;
  for (const LabRun* run : policy.runs) {
    for (const bench::Row& row : run->rows) {
      if (row.error.empty() && row.digest != 0) {
        all[{run->seed, row.due, row.model}] = row.digest;
      }
    }
  }
  return all;
}

}  // namespace

std::vector<Agreement> compare_answers(const std::vector<PolicySummary>& policies) {
  std::vector<Agreement> agreements;
  const auto first = digests(policies.front());
  for (std::size_t i = 1; i < policies.size(); ++i) {
    Agreement agreement{.policy = policies[i].policy};
    for (const auto& [request, digest] : digests(policies[i])) {
      const auto found = first.find(request);
      if (found != first.end()) {
        ++agreement.compared;
        agreement.differing += found->second == digest ? 0 : 1;
      }
    }
    agreements.push_back(std::move(agreement));
  }
  return agreements;
}

std::string describe(const Agreement& agreement, const std::string& first) {
  const std::string count = std::to_string(agreement.compared);
  return agreement.policy + ": " +
         (agreement.compared == 0    ? "no answer could be compared with those of " + first
          : agreement.differing == 0 ? "all " + count + " answers are those of " + first
                                     : std::to_string(agreement.differing) + " of " + count +
                                           " answers differ from those of " + first);
}

}  // namespace heddle::lab
