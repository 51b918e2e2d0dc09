#include "policy/watchdog.h"

#include <algorithm>
#include <utility>

namespace heddle::policy {

namespace {

using namespace std::chrono_literals;

/// Two beats are missed: the kernel is asked.
constexpr Duration kMissed = 500ms;
/// A thread that stands at one thing for so long is looked at.
constexpr Duration kLookAt = 1s;
/// A process is active that runs or waits for a core for this part of the time. Beats alone are
/// less than that.
constexpr std::int64_t kActivePart = 20;
/// Of silence or standing, so much must have passed without activity.
constexpr std::int64_t kQuietPart = 2;

constexpr std::array<std::string_view, kHangReasons> kNames{"stopped", "silent", "start", "stuck"};
constexpr std::array<std::string_view, kDoings> kDoingNames{"idle",
                                                            "at work on messages",
                                                            "in a step",
                                                            "in a step with its group",
                                                            "in a step that waits for weights",
                                                            "mapping and copying"};

/// "1.2 s"
std::string in_seconds(Duration span) {
  const std::int64_t tenths = span / 100ms;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

Verdict verdict(Health health, HangReason reason, std::string why) {
  return {.health = health, .reason = reason, .why = std::move(why)};
}

}  // namespace

std::string_view name(HangReason reason) {
  return kNames.at(static_cast<std::size_t>(reason));
}

void Watchdog::heard_hello() {
  ready_ = true;
  beat_ = watched_;
}

void Watchdog::heard_beat(const std::vector<ThreadPulse>& threads) {
  beat_ = watched_;
  for (const ThreadPulse& pulse : threads) {
    Thread& thread = threads_[pulse.name];
    if (!(thread.pulse == pulse)) {
      thread = {.pulse = pulse, .since = watched_};
    }
  }
}

bool Watchdog::wants_signs() const {
  return traced_ || silence() >= kMissed ||
         std::any_of(threads_.begin(), threads_.end(), [&](const auto& at) {
           const Thread& thread = at.second;
           return thread.pulse.doing != Doing::kIdle && watched_ - thread.since >= kLookAt;
         });
}

/// Nothing that has been seen so far counts.
void Watchdog::excuse() {
  beat_ = watched_;
  stopped_since_.reset();
  active_.reset();
  for (auto& [name, thread] : threads_) {
    thread.since = watched_;
  }
}

void Watchdog::note(const ProcessSigns& signs) {
  if (signs.state != 'T') {
    stopped_since_.reset();
  } else if (!stopped_since_) {
    stopped_since_ = watched_;
  }
  // At the first look the benefit of the doubt.
  const Duration passed = watched_ - seen_at_;
  if (!active_ || signs.active - *active_ >= passed / kActivePart || signs.state == 'D') {
    active_at_ = watched_;
  }
  active_ = signs.active;
  seen_at_ = watched_;
}

Verdict Watchdog::judge(Instant now, const std::optional<ProcessSigns>& signs) {
  watched_ += std::clamp(now - judged_, Duration{}, kPeriodMost);
  judged_ = now;
  if (!signs) {
    stopped_since_.reset();
    active_.reset();
    return {};
  }
  traced_ = signs->traced || signs->state == 't';
  if (traced_) {
    excuse();
    return {.health = Health::kTraced, .why = "a debugger has it"};
  }
  note(*signs);
  Verdict worst = judge_silence();
  for (const auto& [name, thread] : threads_) {
    if (worst.health < Health::kSuspected) {
      worst = judge_thread(thread);
    }
  }
  return worst;
}

Verdict Watchdog::judge_silence() const {
  if (stopped_since_) {
    const Duration stopped = watched_ - *stopped_since_;
    const std::string why = "a signal has stopped it; no beat for " + in_seconds(silence());
    if (stopped >= bounds_.stopped) {
      return verdict(Health::kHung, HangReason::kStopped, why);
    }
    return silence() >= bounds_.suspect ? verdict(Health::kSuspected, HangReason::kStopped, why)
                                        : Verdict{};
  }
  const bool idle = quiet() >= silence() / kQuietPart && quiet() > Duration{};
  if (!ready_) {
    const bool hung = watched_ >= (idle ? bounds_.start : bounds_.start_busy);
    return hung ? verdict(Health::kHung,
                          HangReason::kStart,
                          "it was not ready after " + in_seconds(watched_))
                : Verdict{};
  }
  const std::string why = "no beat for " + in_seconds(silence()) +
                          (idle ? ", and it does nothing" : ", although it runs");
  if (silence() >= (idle ? bounds_.silent : bounds_.silent_busy)) {
    return verdict(Health::kHung, HangReason::kSilent, why);
  }
  if (silence() >= (idle ? bounds_.suspect : bounds_.silent)) {
    return verdict(Health::kSuspected, HangReason::kSilent, why);
  }
  return {};
}

/// A rank that waits for another within a step does nothing for as long as that takes: the other is
/// watched as well.
Verdict Watchdog::judge_thread(const Thread& thread) const {
  const ThreadPulse& pulse = thread.pulse;
  if (pulse.doing == Doing::kIdle || !ready_) {
    return {};
  }
  const Duration stood = watched_ - thread.since;
  const bool idle = quiet() >= stood / kQuietPart && quiet() > Duration{};
  const bool step = pulse.doing == Doing::kStep || pulse.doing == Doing::kGroupStep;
  Duration suspect = std::max(bounds_.stuck_suspect, bounds_.stuck_suspect_times * pulse.expected);
  Duration bound =
      step ? std::max(bounds_.stuck, bounds_.stuck_times * pulse.expected) : bounds_.stuck_work;
  if (pulse.doing == Doing::kWeights || (pulse.doing == Doing::kGroupStep && idle)) {
    bound = bounds_.stuck_waiting;
    suspect = bound / 2;
  } else if (!idle) {
    bound = std::max(
        {bounds_.stuck_busy, bounds_.stuck_work * 2, bounds_.stuck_busy_times * pulse.expected});
    suspect = bound / 2;
  }
  const std::string why =
      "its " + pulse.name + " thread has been " +
      std::string(kDoingNames.at(static_cast<std::size_t>(pulse.doing))) + " for " +
      in_seconds(stood) +
      (pulse.expected > Duration{} ? ", which takes " + std::to_string(pulse.expected / 1ms) + " ms"
                                   : "");
  if (stood >= bound) {
    return verdict(Health::kHung, HangReason::kStuck, why);
  }
  return stood >= suspect ? verdict(Health::kSuspected, HangReason::kStuck, why) : Verdict{};
}

}  // namespace heddle::policy
