#include "cli/trace_stretches.h"

#include <algorithm>

#include "base/check.h"
#include "base/rng.h"

namespace heddle::cli {
namespace {

using Rows = std::vector<sim::TraceRow>;

/// A stretch is no shorter than this where the requests allow it: shorter ones are mostly warm-up
/// of caches, and end before queues have grown.
constexpr Duration kShortest = std::chrono::minutes(15);
constexpr std::int64_t kFewest = 4;
constexpr std::int64_t kMost = 24;

std::size_t first_at(const Rows& rows, Instant at) {
  return static_cast<std::size_t>(std::ranges::lower_bound(rows, at, {}, &sim::TraceRow::arrival) -
                                  rows.begin());
}

/// Of 0 to count - 1, such that each beginning of it is spread over all of them (van der Corput).
std::vector<std::size_t> spread(std::size_t count) {
  std::size_t bits = 0;
  while ((std::size_t{1} << bits) < count) {
    ++bits;
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < (std::size_t{1} << bits); ++i) {
    std::size_t turned = 0;
    for (std::size_t bit = 0; bit < bits; ++bit) {
      turned |= ((i >> bit) & 1U) << (bits - 1 - bit);
    }
    if (turned < count) {
      order.push_back(turned);
    }
  }
  return order;
}

}  // namespace

TracePart whole_trace(const Rows& rows, Duration warmup) {
  HEDDLE_CHECK(!rows.empty());
  const Instant counted(warmup);
  const Stretch all{.begin = 0, .end = rows.size(), .from = Instant{}, .counted = counted};
  return {.stretches = {all},
          .requests = static_cast<std::int64_t>(rows.size() - first_at(rows, counted)),
          .counted = std::max(Duration{}, rows.back().arrival - counted)};
}

TracePart draw_stretches(const Rows& rows, Duration warmup, std::int64_t most, std::uint64_t seed) {
  TracePart part = whole_trace(rows, warmup);
  const auto span = static_cast<double>(part.counted.count());
  if (most <= 0 || std::ssize(rows) <= most || span <= 0) {
    return part;
  }
  const double time = span * static_cast<double>(most) / static_cast<double>(rows.size());
  const auto count = std::clamp(
      static_cast<std::int64_t>(time / static_cast<double>(kShortest.count())), kFewest, kMost);
  const auto cell = static_cast<Duration::rep>(span / static_cast<double>(count));
  const auto each = static_cast<Duration::rep>(time / 2 / static_cast<double>(count));
  Rng rng(seed);
  std::vector<Stretch> drawn;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto late = static_cast<Duration::rep>(
        rng.below(static_cast<std::uint64_t>(std::max<Duration::rep>(1, cell - each))));
    const Instant counted = Instant(warmup) + Duration(i * cell + late);
    const Instant from = std::max(Instant{}, counted - Duration(each));
    drawn.push_back({.begin = first_at(rows, from),
                     .end = first_at(rows, counted + Duration(each)),
                     .from = from,
                     .counted = counted,
                     .before = Duration(i * each)});
  }
  part = {.counted = Duration(count * each), .whole = false};
  for (const std::size_t i : spread(drawn.size())) {
    part.requests += static_cast<std::int64_t>(drawn[i].end - first_at(rows, drawn[i].counted));
    part.stretches.push_back(drawn[i]);
  }
  return part.requests > 0 ? part : whole_trace(rows, warmup);
}

TracePart beginning_of(const TracePart& part,
                       const Rows& rows,
                       std::size_t stretches,
                       Instant until) {
  TracePart made{.counted = part.counted, .whole = false};
  for (std::size_t i = 0; i < std::min(stretches, part.stretches.size()); ++i) {
    Stretch stretch = part.stretches[i];
    if (i + 1 == stretches) {
      const auto end = static_cast<std::size_t>(
          std::ranges::upper_bound(rows, until, {}, &sim::TraceRow::arrival) - rows.begin());
      stretch.end = std::clamp(end, stretch.begin, stretch.end);
    }
    const std::size_t counted = std::max(stretch.begin, first_at(rows, stretch.counted));
    made.requests += static_cast<std::int64_t>(std::max(stretch.end, counted) - counted);
    made.stretches.push_back(stretch);
  }
  made.whole = part.whole && made.requests == part.requests;
  return made;
}

bool StretchSource::next(sim::TraceRow& row) {
  if (next_ == stretch_.end) {
    return false;
  }
  row = rows_[next_++];
  row.arrival -= stretch_.from.time_since_epoch();
  return true;
}

Instant StretchSource::last() const {
  return next_ == stretch_.begin ? stretch_.from : rows_[next_ - 1].arrival;
}

}  // namespace heddle::cli
