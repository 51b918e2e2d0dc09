#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/time.h"

namespace heddle::external {

/// One step of bringing an engine in or out, and what it took: "lock", "save", "freeze".
struct Phase {
  std::string name{};
  Duration took{};
  friend bool operator==(const Phase&, const Phase&) = default;
};

/// Times the steps of something that is done in steps.
class PhaseTimer {
 public:
  /// What was done since the last call, or since it was made, is called `name`.
  void note(std::string_view name) {
    const Instant now = steady_now();
    phases_.push_back({.name = std::string(name), .took = now - last_});
    last_ = now;
  }
  /// What was done since then counts for nothing.
  void skip() { last_ = steady_now(); }
  /// Appends what somebody else has timed meanwhile.
  void add(const std::vector<Phase>& phases) {
    phases_.insert(phases_.end(), phases.begin(), phases.end());
    skip();
  }

  [[nodiscard]] const std::vector<Phase>& phases() const { return phases_; }
  [[nodiscard]] Duration total() const {
    Duration sum{};
    for (const Phase& phase : phases_) {
      sum += phase.took;
    }
    return sum;
  }

 private:
  std::vector<Phase> phases_{};
  Instant last_ = steady_now();
};

}  // namespace heddle::external
