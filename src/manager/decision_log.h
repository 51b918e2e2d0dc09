#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "core/serving.h"

namespace heddle::manager {

/// The latest decisions. One that only repeats the one before it is left out.
class DecisionLog {
 public:
  static constexpr std::size_t kMost = 1000;

  void note(core::NotedDecision decision) {
    if (!noted_.empty() && same(noted_.back(), decision)) {
      return;
    }
    noted_.push_back(std::move(decision));
    if (noted_.size() > kMost) {
      noted_.pop_front();
    }
  }

  /// Oldest first.
  [[nodiscard]] std::vector<core::NotedDecision> all() const {
    return {noted_.begin(), noted_.end()};
  }

 private:
  static bool same(const core::NotedDecision& a, const core::NotedDecision& b) {
    return a.kind == b.kind && a.model == b.model && a.device == b.device &&
           a.for_model == b.for_model && a.why == b.why;
  }

  std::deque<core::NotedDecision> noted_{};
};

}  // namespace heddle::manager
