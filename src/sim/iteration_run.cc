#include "sim/iteration_run.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::sim {
namespace {

constexpr std::int64_t kPicoseconds = 1000;  // In a nanosecond.

}  // namespace

std::int64_t floor_sum(std::int64_t n, std::int64_t m, std::int64_t a, std::int64_t b) {
  // Counts lattice points under the line, swapping axes as Euclid's algorithm does.
  std::int64_t sum = 0;
  while (n > 0) {
    sum += n * (n - 1) / 2 * (a / m) + n * (b / m);
    a %= m;
    b %= m;
    const std::int64_t top = a * n + b;
    if (top < m) {
      break;
    }
    n = top / m;
    b = top % m;
    std::swap(a, m);
  }
  return sum;
}

void IterationRun::add_line(std::int64_t base_ps, std::int64_t growth_ps) {
  HEDDLE_CHECK(count_ < lines_.size() && base_ps >= 0 && growth_ps >= 0);
  lines_[count_++] = {.base = base_ps, .growth = growth_ps};
}

void IterationRun::skip(std::int64_t count) {
  for (std::size_t i = 0; i < count_; ++i) {
    lines_[i].base = lines_[i].at(count);
  }
}

/// The line that is largest at `k`; of equal ones the steepest, which leads from there on.
std::size_t IterationRun::largest_at(std::int64_t k) const {
  std::size_t best = 0;
  for (std::size_t i = 1; i < count_; ++i) {
    const std::int64_t lead = lines_[i].at(k) - lines_[best].at(k);
    if (lead > 0 || (lead == 0 && lines_[i].growth > lines_[best].growth)) {
      best = i;
    }
  }
  return best;
}

/// The first iteration after `from` at which another line is larger than `line`.
std::int64_t IterationRun::leads_until(std::size_t line, std::int64_t from) const {
  std::int64_t until = INT64_MAX;
  for (std::size_t i = 0; i < count_; ++i) {
    const std::int64_t gain = lines_[i].growth - lines_[line].growth;
    if (gain > 0) {
      const std::int64_t behind = lines_[line].at(from) - lines_[i].at(from);
      until = std::min(until, from + behind / gain + 1);
    }
  }
  return until;
}

Duration IterationRun::sum(std::int64_t count) const {
  std::int64_t total = constant_ * count;
  for (std::int64_t from = 0; from < count && count_ > 0;) {
    const std::size_t line = largest_at(from);
    const std::int64_t to = std::min(count, leads_until(line, from));
    total += floor_sum(to - from, kPicoseconds, lines_[line].growth, lines_[line].at(from));
    from = to;
  }
  return Duration(total);
}

Duration IterationRun::at(std::int64_t k) const {
  return Duration(constant_ + (count_ == 0 ? 0 : lines_[largest_at(k)].at(k) / kPicoseconds));
}

std::int64_t IterationRun::count_until(Duration time, std::int64_t most) const {
  std::int64_t enough = most;
  std::int64_t least = 1;
  while (least < enough) {
    const std::int64_t middle = least + (enough - least) / 2;
    if (sum(middle) >= time) {
      enough = middle;
    } else {
      least = middle + 1;
    }
  }
  return enough;
}

}  // namespace heddle::sim
