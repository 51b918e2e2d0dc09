#include "policy/lending.h"

#include <algorithm>
#include <tuple>

#include "base/units.h"

namespace heddle::policy {

using namespace std::chrono_literals;

Lending choose_lenders(std::span<const LenderCandidate> idle,
                       std::int64_t lacking,
                       double waited,
                       std::int64_t sequences) {
  std::vector<LenderCandidate> order(idle.begin(), idle.end());
  std::sort(order.begin(), order.end(), [](const LenderCandidate& a, const LenderCandidate& b) {
    return std::tuple(a.worth / static_cast<double>(a.pages), a.last_used, a.model) <
           std::tuple(b.worth / static_cast<double>(b.pages), b.last_used, b.model);
  });
  Lending lending;
  for (const LenderCandidate& lender : order) {
    if (lacking <= 0) {
      break;
    }
    if (lender.worth > waited) {
      lending.next = until_paid(lender.worth, waited, sequences);
      break;
    }
    waited -= lender.worth;
    lacking -= lender.pages;
    lending.paid += lender.worth;
    lending.lenders.push_back(lender.model);
  }
  return lending;
}

Duration until_paid(double cost, double waited, std::int64_t sequences) {
  return std::max<Duration>(1ms, from_seconds((cost - waited) / static_cast<double>(sequences)));
}

std::int64_t recallable(std::int64_t sequences,
                        std::int64_t pages,
                        std::int64_t free,
                        std::int64_t most) {
  const std::int64_t each = std::max<std::int64_t>(1, (pages - 1) / sequences + 1);
  return std::min(free / each, most);
}

}  // namespace heddle::policy
