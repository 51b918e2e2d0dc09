#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/summary.h"

namespace heddle::lab {

/// How the answers of one policy compare with those that the first gave to the same requests.
struct Agreement {
  std::string policy{};
  std::int64_t compared = 0;   ///< Requests that both answered whole.
  std::int64_t differing = 0;  ///< Of them, those with another token or log probability.
};

/// Of all policies but the first. Requests are the same where seed, model and time due are. Rows
/// without bench::Row::digest are left out.
[[nodiscard]] std::vector<Agreement> compare_answers(const std::vector<PolicySummary>& policies);

/// "woven: all 412 answers are those of dedicated".
[[nodiscard]] std::string describe(const Agreement& agreement, const std::string& first);

}  // namespace heddle::lab
