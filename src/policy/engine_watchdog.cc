#include "policy/engine_watchdog.h"

#include <algorithm>
#include <string>

namespace heddle::policy {

namespace {

using namespace std::chrono_literals;

/// An engine computes that runs for this part of the time.
constexpr std::int64_t kComputesPart = 20;

}  // namespace

void EngineWatchdog::excuse(Instant now) {
  *this = EngineWatchdog(now);
}

Verdict EngineWatchdog::look(Instant now, const EngineSigns& signs) {
  watched_ += std::clamp(now - looked_, Duration{}, kPeriodMost);
  looked_ = now;
  ran_ = signs.ran;
  if (signs.silent_since != heard_) {
    heard_ = signs.silent_since;
    silent_since_ = watched_;
    unanswered_ = 0;
  }
  if (!signs.stopped) {
    stopped_since_.reset();
  } else if (!stopped_since_) {
    stopped_since_ = watched_;
  }
  if (stopped_since_ && watched_ > *stopped_since_) {
    const bool hung = watched_ - *stopped_since_ >= kStopped;
    return {.health = hung ? Health::kHung : Health::kSuspected,
            .reason = HangReason::kStopped,
            .why = "a signal has stopped it"};
  }
  if (unanswered_ == 0) {
    return {};
  }
  const bool computes = ran_ - ran_before_ >= (watched_ - unanswered_since_) / kComputesPart;
  const bool hung = unanswered_ >= kProbesMost && !computes;
  return {.health = hung ? Health::kHung : Health::kSuspected,
          .reason = HangReason::kSilent,
          .why = "its requests have had no byte for " +
                 std::to_string((watched_ - silent_since_) / 1s) +
                 " s, and it does not say how it is" + (computes ? ", although it computes" : "")};
}

bool EngineWatchdog::wants_probe() const {
  return heard_ && watched_ - silent_since_ >= kSilence && watched_ - answered_at_ >= kSilence;
}

void EngineWatchdog::probed(bool answered) {
  if (answered) {
    answered_at_ = watched_;
    unanswered_ = 0;
    return;
  }
  if (unanswered_++ == 0) {
    unanswered_since_ = watched_;
    ran_before_ = ran_;
  }
}

}  // namespace heddle::policy
