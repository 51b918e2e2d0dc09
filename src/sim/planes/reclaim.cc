#include "sim/planes/reclaim.h"

#include <algorithm>

#include "base/check.h"
#include "base/div_up.h"

namespace heddle::sim {
std::int64_t kv_reserve(const GraceView& view, ReserveVariant variant) {
  const std::int64_t m = view.kv_pages;
  const std::int64_t c = view.batch;
  HEDDLE_CHECK(m >= 0 && c >= 0 && view.requests >= 0 && view.kv_pages_used >= 0);
  if (m == 0 || c == 0) {
    return m;
  }
  const std::int64_t by_requests = div_up(m * view.requests, c);
  const std::int64_t wanted = variant == ReserveVariant::kPaper
                                  ? std::max(by_requests, view.kv_pages_used + div_up(m, c))
                                  : view.kv_pages_used + by_requests;
  return std::max(std::min(m, wanted), view.kv_pages_used);
}

}  // namespace heddle::sim
