#include "policy/state_points.h"

#include <algorithm>

#include "base/check.h"
#include "base/div_up.h"

namespace heddle::policy {
namespace {

/// KV of as many bytes as so many copies lies between two of them.
constexpr std::int64_t kKvOfCopy = 4;

}  // namespace

std::vector<StatePoint> state_points(const StateSpan& span) {
  HEDDLE_CHECK(span.block > 0 && span.apart > 0 && span.apart % span.block == 0);
  const std::int64_t of_prompt = (span.prompt - 1) / span.block * span.block;
  std::vector<std::int64_t> lengths{of_prompt, span.parted};
  for (std::int64_t at = (span.begin / span.apart + 1) * span.apart;
       at <= std::min(span.end, of_prompt);
       at += span.apart) {
    lengths.push_back(at);
  }
  std::ranges::sort(lengths);
  std::vector<StatePoint> points;
  for (const std::int64_t length : lengths) {
    const bool known = !points.empty() && points.back().length == length;
    if (length > span.begin && length <= span.end && !known) {
      points.push_back({.length = length, .lasting = true});
    }
  }
  const std::int64_t last = span.end / span.block * span.block;
  if (points.empty() && last > span.begin) {
    points.push_back({.length = last});
  }
  return points;
}

std::int64_t state_spacing(std::int64_t state_bytes, std::int64_t token_bytes, std::int64_t block) {
  HEDDLE_CHECK(token_bytes > 0 && block > 0);
  return std::max<std::int64_t>(div_up(kKvOfCopy * state_bytes, token_bytes * block), 1) * block;
}

}  // namespace heddle::policy
