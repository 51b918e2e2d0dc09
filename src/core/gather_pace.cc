#include "core/gather_pace.h"

#include <algorithm>
#include <chrono>

namespace heddle::core {
namespace {

/// A token of a stream may come later by so much.
constexpr Duration kLate = std::chrono::milliseconds(25);
constexpr std::int64_t kMost = std::int64_t{1} << 20U;

}  // namespace

void GatherPace::asked(policy::SequenceId sequence, std::int64_t end, Instant now) {
  if (!timed_) {
    timed_ = {.sequence = sequence, .end = end, .since = now};
  }
}

void GatherPace::came(policy::SequenceId sequence,
                      std::int64_t there,
                      std::int64_t block_tokens,
                      Instant now) {
  if (timed_ && timed_->sequence == sequence && there >= timed_->end) {
    const Duration took = now - timed_->since;
    timed_.reset();
    quickest_ = std::min(quickest_.value_or(took), took);
    tokens_ = took > *quickest_ + kLate ? tokens_ / 2 : std::min(2 * tokens_, kMost);
  }
  tokens_ = std::max(tokens_, block_tokens);
}

}  // namespace heddle::core
