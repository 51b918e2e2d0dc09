#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <string>
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

  /// What the first token took that the latest such load said this of.
  void measured(const std::string& model,
                const std::string& device,
                Duration predicted,
                Duration took) {
    const auto load = std::find_if(noted_.rbegin(), noted_.rend(), [&](const auto& noted) {
      return noted.first_token == predicted && noted.model == model && noted.device == device;
    });
    if (load != noted_.rend()) {
      load->first_token_was = took;
    }
  }

  /// Oldest first.
  [[nodiscard]] std::vector<core::NotedDecision> all() const {
    return {noted_.begin(), noted_.end()};
  }

 private:
  static bool same(const core::NotedDecision& a, const core::NotedDecision& b) {
    return a.kind == b.kind && a.model == b.model && a.device == b.device &&
           a.for_model == b.for_model && a.why == b.why && a.first_token == b.first_token;
  }

  std::deque<core::NotedDecision> noted_{};
};

}  // namespace heddle::manager
