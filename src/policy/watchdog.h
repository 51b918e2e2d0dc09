#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"

namespace heddle::policy {

/// What a thread of a worker may be at.
enum class Doing : std::uint8_t {
  kIdle,       ///< Waits for something to do.
  kWork,       ///< Takes in messages and carries out what follows from them.
  kStep,       ///< Runs a step.
  kGroupStep,  ///< Runs a step in lockstep with other workers, for which it waits within.
  kWeights,    ///< Runs a step that waits for weights, which somebody else brings.
  kCopy,       ///< Maps windows and copies images.
};
inline constexpr std::size_t kDoings = 6;

/// A thread as its worker tells of it in a beat.
struct ThreadPulse {
  std::string name{};
  Doing doing = Doing::kIdle;
  std::uint64_t progress = 0;  ///< Grows with whatever it begins, ends or gets on with.
  Duration expected{};         ///< What this takes, by what it took before; 0: unknown.
  friend bool operator==(const ThreadPulse&, const ThreadPulse&) = default;
};

/// What the kernel says of a process.
struct ProcessSigns {
  char state = 'S';     ///< Of its first thread, as in ps: 'R', 'S', 'D', 'T' (stopped) ...
  bool traced = false;  ///< A debugger has one of its threads.
  /// How long its threads together have run or waited for a core, so far.
  Duration active{};
};

/// How a worker was found to hang.
enum class HangReason : std::uint8_t {
  kStopped,  ///< By a signal.
  kSilent,   ///< No beat came.
  kStart,    ///< It never said that it is ready.
  kStuck,    ///< One of its threads does not get on.
};
inline constexpr std::size_t kHangReasons = 4;
/// As in metric labels: "stopped".
[[nodiscard]] std::string_view name(HangReason reason);

enum class Health : std::uint8_t { kFine, kTraced, kSuspected, kHung };

struct Verdict {
  Health health = Health::kFine;
  HangReason reason = HangReason::kStopped;  ///< Meaningful where suspected or hung.
  std::string why{};                         ///< For people; empty where fine.
};

/// After how long of what a worker counts as hanging. All of time that was watched. Where two are
/// given, the first is of a process that does nothing, the second of one that runs or waits for a
/// core: load looks so, and an endless loop.
struct WatchBounds {
  Duration suspect = std::chrono::seconds(1);  ///< Of silence.
  Duration stopped = std::chrono::milliseconds(1250);
  Duration silent = std::chrono::seconds(5);
  Duration silent_busy = std::chrono::seconds(30);
  Duration start = std::chrono::seconds(60);
  Duration start_busy = std::chrono::minutes(10);
  // A thread at one thing, by what is expected of it and at least so long.
  Duration stuck_suspect = std::chrono::seconds(2);
  std::int64_t stuck_suspect_times = 10;
  Duration stuck = std::chrono::seconds(10);
  std::int64_t stuck_times = 20;
  Duration stuck_busy = std::chrono::seconds(60);
  std::int64_t stuck_busy_times = 100;
  Duration stuck_work = std::chrono::seconds(30);     ///< Of what is no step, and not learnt.
  Duration stuck_waiting = std::chrono::minutes(10);  ///< For others, who are watched themselves.
};

/// Whether one life of a worker still does what it is there for, by what it says four times a
/// second and by what the kernel says of its process. A false alarm is worse than a late one: time
/// in which the watcher itself did not run does not count, nor does any under a debugger. Used by
/// one thread; has no clock.
class Watchdog {
 public:
  /// A watcher judges at least this often; what it is later than that does not count.
  static constexpr Duration kPeriodMost = std::chrono::milliseconds(500);

  explicit Watchdog(Instant now, const WatchBounds& bounds = {}) : bounds_(bounds), judged_(now) {}

  /// It has said that it is ready.
  void heard_hello();
  void heard_beat(const std::vector<ThreadPulse>& threads);

  /// Whether judge() wants to know what the kernel says: seldom of a worker that is well.
  [[nodiscard]] bool wants_signs() const;
  /// @param signs  Of the process, as far as they are wanted and can be had.
  [[nodiscard]] Verdict judge(Instant now, const std::optional<ProcessSigns>& signs);

 private:
  struct Thread {
    ThreadPulse pulse{};
    Duration since{};  ///< When it was first seen to stand so.
  };

  void note(const ProcessSigns& signs);
  void excuse();
  [[nodiscard]] Verdict judge_silence() const;
  [[nodiscard]] Verdict judge_thread(const Thread& thread) const;
  [[nodiscard]] Duration silence() const { return watched_ - beat_; }
  /// How long its process has done nothing.
  [[nodiscard]] Duration quiet() const { return active_ ? watched_ - active_at_ : Duration{}; }

  WatchBounds bounds_;
  Instant judged_;
  Duration watched_{};  ///< So far. All that follows are times on this clock.
  Duration beat_{};     ///< The last.
  bool ready_ = false;
  bool traced_ = false;  ///< When last seen.
  std::map<std::string, Thread> threads_{};
  std::optional<Duration> stopped_since_{};
  std::optional<Duration> active_{};  ///< What its threads had run and waited when last seen.
  Duration seen_at_{};
  Duration active_at_{};  ///< When they were seen to do so.
};

}  // namespace heddle::policy
