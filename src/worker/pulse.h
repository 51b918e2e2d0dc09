#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/time.h"
#include "policy/watchdog.h"

namespace heddle::worker {

/// What one thread is at, for who watches it: written by that thread, read by any. Some 50 ns a
/// call, so that a step may say it.
class Pulse {
 public:
  explicit Pulse(std::string name) : name_(std::move(name)) {}

  /// The thread begins something, and has ended what it was at. What steps take is learnt.
  /// @param least  What it takes at least, as far as that is known.
  void begin(policy::Doing doing, Duration least = {}) {
    end();
    const bool learns = is_step(doing);
    began_ = steady_now();
    expected_.store(std::max(learns ? learnt_ : Duration{}, least).count(),
                    std::memory_order_relaxed);
    doing_.store(doing, std::memory_order_relaxed);
  }
  /// It has nothing to do.
  void end() {
    if (is_step(doing_.load(std::memory_order_relaxed))) {
      const Duration took = steady_now() - began_;
      learnt_ = std::max(took, learnt_ - learnt_ / kForgets);
    }
    doing_.store(policy::Doing::kIdle, std::memory_order_relaxed);
    get_on();
  }
  /// It gets on with what it is at.
  void get_on() { progress_.fetch_add(1, std::memory_order_relaxed); }

  /// Any thread. A change in between may show by half, which the next reading puts right.
  [[nodiscard]] policy::ThreadPulse read() const {
    return {.name = name_,
            .doing = doing_.load(std::memory_order_relaxed),
            .progress = progress_.load(std::memory_order_relaxed),
            .expected = Duration(expected_.load(std::memory_order_relaxed))};
  }

 private:
  /// The longest of late: of what is longer than that which came after, one part in so many goes
  /// with each.
  static constexpr std::int64_t kForgets = 64;
  [[nodiscard]] static bool is_step(policy::Doing doing) {
    return doing == policy::Doing::kStep || doing == policy::Doing::kGroupStep;
  }

  std::string name_;
  std::atomic<policy::Doing> doing_{policy::Doing::kIdle};
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<std::int64_t> expected_{0};
  Instant began_{};  ///< The thread's alone, as the next.
  Duration learnt_{};
};

}  // namespace heddle::worker
