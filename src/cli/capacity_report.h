#pragma once

#include <string>

#include "cli/capacity_plan.h"

namespace heddle::cli {

/// The plans for people: of each kind of server every size that was tried, how many it takes, what
/// lacks on one less and what it costs; then which kind is the best. The best is the cheapest where
/// all have prices, else that of the fewest GPUs.
[[nodiscard]] std::string capacity_text(const CapacityQuestion& question,
                                        const CapacityPlans& plans);

/// All numbers, as JSON.
[[nodiscard]] std::string capacity_json(const CapacityQuestion& question,
                                        const CapacityPlans& plans);

/// A page with pictures. @param command  That makes the same page.
[[nodiscard]] std::string capacity_html(const CapacityQuestion& question,
                                        const CapacityPlans& plans,
                                        const std::string& command);

}  // namespace heddle::cli
