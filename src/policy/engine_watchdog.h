#pragma once

#include <optional>

#include "base/time.h"
#include "policy/watchdog.h"

namespace heddle::policy {

/// What is seen of an external engine.
struct EngineSigns {
  bool stopped = false;  ///< A signal has stopped one of its processes.
  Duration ran{};        ///< How long its processes together have run so far.
  /// Requests are with it: when the last byte of an answer to any of them came, or the last of them
  /// was forwarded. Nothing: none is.
  std::optional<Instant> silent_since{};
};

/// Whether an external engine that is to run still does. One that is silent is asked
/// for its health; one that answers, or that computes, is left alone however long its requests
/// wait. As with Watchdog, time in which nobody watched does not count. Used by one thread; has no
/// clock.
class EngineWatchdog {
 public:
  /// What a look that comes later counts as.
  static constexpr Duration kPeriodMost = std::chrono::seconds(2);
  static constexpr Duration kStopped = std::chrono::seconds(2);
  /// Silence after which it is asked, and between one answer and asking again.
  static constexpr Duration kSilence = std::chrono::seconds(10);
  /// How long it has to answer.
  static constexpr Duration kProbePatience = std::chrono::seconds(5);
  /// Unanswered ones, while it computes nothing, of an engine that hangs.
  static constexpr int kProbesMost = 2;

  explicit EngineWatchdog(Instant now) : looked_(now) {}

  /// It is not to run for now: what was seen does not count.
  void excuse(Instant now);
  [[nodiscard]] Verdict look(Instant now, const EngineSigns& signs);
  /// Whether it is to be asked for its health now.
  [[nodiscard]] bool wants_probe() const;
  /// It was asked, and gave an answer of any kind, or none in time.
  void probed(bool answered);

 private:
  Instant looked_;
  Duration watched_{};  ///< So far. All that follows are times on this clock.
  std::optional<Duration> stopped_since_{};
  std::optional<Instant> heard_{};
  Duration silent_since_{};
  Duration answered_at_{};
  int unanswered_ = 0;  ///< Probes in a row.
  Duration unanswered_since_{};
  Duration ran_{};         ///< When last looked at.
  Duration ran_before_{};  ///< When the first of those probes was sent.
};

}  // namespace heddle::policy
