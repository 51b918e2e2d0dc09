#include "sim/planes/idle_evictions.h"

#include <algorithm>
#include <tuple>

namespace heddle::sim {
namespace {

constexpr Duration kShortestThreshold = std::chrono::seconds{10};
constexpr std::int64_t kActivationsIdle = 5;

}  // namespace

Duration idle_threshold(std::span<const Duration> gaps, Duration activation) {
  const Duration fallback = std::max(kShortestThreshold, kActivationsIdle * activation);
  if (gaps.size() < kFewestGaps) {
    return fallback;
  }
  std::vector<Duration> sorted(gaps.begin(), gaps.end());
  std::sort(sorted.begin(), sorted.end());
  // Just after gap i (or from the start), the gaps still open are those longer: on average they go
  // on for mean(longer) - gap i. The rest shrinks between gaps and jumps at each.
  Duration sum{};
  for (const Duration gap : sorted) {
    sum += gap;
  }
  Duration now{};
  auto open = std::ssize(sorted);
  for (const Duration gap : sorted) {
    if (sum / open - now > activation) {
      return now;
    }
    now = gap;
    sum -= gap;
    if (--open == 0) {
      break;
    }
  }
  return fallback;
}

std::optional<std::vector<ModelId>> choose_idle_evictions(std::span<const IdleModel> models,
                                                          std::int64_t need_bytes,
                                                          IdleOrder order) {
  std::vector<IdleModel> candidates;
  std::copy_if(
      models.begin(), models.end(), std::back_inserter(candidates), [](const IdleModel& m) {
        return !m.pinned && m.idle > m.threshold;
      });
  std::sort(candidates.begin(), candidates.end(), [order](const IdleModel& a, const IdleModel& b) {
    const bool a_breaks = a.activation > a.ttft;
    const bool b_breaks = b.activation > b.ttft;
    if (a_breaks != b_breaks) {
      return b_breaks;
    }
    if (order == IdleOrder::kPaper) {
      return std::tie(b.ttft, a.model) < std::tie(a.ttft, b.model);
    }
    return std::tie(a.value, a.model) < std::tie(b.value, b.model);
  });
  std::int64_t freed = 0;
  std::vector<IdleModel> chosen;
  for (const IdleModel& candidate : candidates) {
    if (freed >= need_bytes) {
      break;
    }
    freed += candidate.bytes;
    chosen.push_back(candidate);
  }
  if (freed < need_bytes) {
    return std::nullopt;
  }
  // The last may be large enough to spare some before it; the most valuable of those stay.
  for (std::size_t i = chosen.size(); i-- > 0;) {
    if (freed - chosen[i].bytes >= need_bytes) {
      freed -= chosen[i].bytes;
      chosen.erase(chosen.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  std::vector<ModelId> victims;
  for (const IdleModel& victim : chosen) {
    victims.push_back(victim.model);
  }
  return victims;
}

}  // namespace heddle::sim
