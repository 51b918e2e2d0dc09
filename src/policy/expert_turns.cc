#include "policy/expert_turns.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace heddle::policy {
namespace {

/// Beyond it all counts are scaled down, so that none overflows.
constexpr double kWeightMost = 1e100;

std::size_t index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

}  // namespace

ExpertTurns::ExpertTurns(std::int64_t experts, std::int64_t slots, double half_life)
    : growth_(std::exp2(1.0 / half_life)),
      counts_(index(experts)),
      slots_(index(experts)),
      experts_(index(slots)) {
  HEDDLE_CHECK(slots >= 1 && slots <= experts);
  HEDDLE_CHECK(half_life > 0 && growth_ < kWeightMost);
}

void ExpertTurns::begin_pass() {
  for (const std::int64_t expert : taken_) {
    counts_[index(expert)] += weight_;
  }
  taken_.clear();
  weight_ *= growth_;
  if (weight_ > kWeightMost) {
    for (double& each : counts_) {
      each /= weight_;
    }
    weight_ = 1.0;
  }
}

ExpertTurns::Turn ExpertTurns::take(std::int64_t expert) {
  std::optional<std::int64_t>& slot = slots_.at(index(expert));
  taken_.push_back(expert);
  if (slot) {
    return {.slot = *slot, .there = true};
  }
  if (used_ < std::ssize(experts_)) {
    slot = used_++;
  } else {
    slot = coldest();
    slots_[index(experts_[index(*slot)])].reset();
  }
  experts_[index(*slot)] = expert;
  return {.slot = *slot, .there = false};
}

/// The slot of the expert that counts least; of equal ones the lowest.
std::int64_t ExpertTurns::coldest() const {
  const auto least = std::ranges::min_element(
      experts_, {}, [this](std::int64_t expert) { return counts_[index(expert)]; });
  return least - experts_.begin();
}

}  // namespace heddle::policy
