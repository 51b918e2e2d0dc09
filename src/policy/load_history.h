#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/time.h"

namespace heddle::policy {

/// A model's load in one window: requests in the system, queued ones included ("WarmServe: Enabling
/// One-for-Many GPU Prewarming for Multi-LLM Serving", section 5.1).
struct Load {
  double mean = 0;  ///< The integral of the number in the system over the window, over its length.
  double peak = 0;  ///< The largest number in the system at once.
  friend bool operator==(const Load&, const Load&) = default;
};

/// Cuts time into windows that recur at the same times every day. Windows are numbered from the
/// calendar's zero (for a live system midnight UTC of some day), so that window w and window
/// w + windows_per_day are the same time of day.
struct Calendar {
  Duration window = std::chrono::seconds(300);
  std::int64_t windows_per_day = 288;
  /// Calendar time at Instant{}. When the wall clock jumps, whoever watches it changes this.
  Duration offset{};

  [[nodiscard]] std::int64_t window_at(Instant at) const;
  [[nodiscard]] Instant start_of(std::int64_t index) const;
};

/// The load of one model in the latest windows: a ring of `days` days, 8 bytes a window (a week of
/// 5 minutes is 18 KiB). A window that was not measured is missing, which is not the same as idle.
class LoadHistory {
 public:
  /// windows_per_day > 0, days > 0. Remembers `days` whole days and the day under way.
  LoadHistory(std::int64_t windows_per_day, std::int64_t days);

  /// Enters the load of a window that has ended. Windows skipped since the newest are missing.
  /// When the clock has gone back (window <= newest()), what lies at or after `window` is
  /// forgotten: it carries times that have not come yet. window >= 0.
  void record(std::int64_t window, Load load);

  /// nullopt: missing, not yet over, or too long ago.
  [[nodiscard]] std::optional<Load> at(std::int64_t window) const;

  /// The latest window recorded; -1 when there is none.
  [[nodiscard]] std::int64_t newest() const { return newest_; }
  [[nodiscard]] std::int64_t windows_per_day() const { return windows_per_day_; }
  [[nodiscard]] std::int64_t days() const { return days_; }

 private:
  struct Cell {
    float mean = -1;  // Negative: missing.
    float peak = 0;
  };
  [[nodiscard]] Cell& cell(std::int64_t window);
  [[nodiscard]] const Cell& cell(std::int64_t window) const;
  [[nodiscard]] std::int64_t capacity() const { return static_cast<std::int64_t>(ring_.size()); }

  std::int64_t windows_per_day_;
  std::int64_t days_;
  std::int64_t newest_ = -1;
  std::vector<Cell> ring_;
};

/// Measures one model's load and enters each window into its history when the window is over.
/// O(1) an event, plus O(1) a window closed. Times must not go back.
class LoadMeter {
 public:
  explicit LoadMeter(Instant now) : counted_to_(now) {}

  /// `delta` requests came (> 0) or left (< 0) at `at`.
  void change(Instant at, std::int64_t delta, const Calendar& calendar, LoadHistory& history);

  /// Closes the windows that ended by `now`. A window is entered if at least half of it was
  /// measured: after a start or a jump of the wall clock in its middle it may stay missing.
  void advance(Instant now, const Calendar& calendar, LoadHistory& history);

  [[nodiscard]] std::int64_t in_system() const { return in_system_; }

 private:
  void close(const Calendar& calendar, LoadHistory& history);

  Instant counted_to_;
  std::int64_t window_ = -1;  // Under way; -1 before the first call.
  std::int64_t in_system_ = 0;
  std::int64_t peak_ = 0;
  Duration measured_{};
  double request_seconds_ = 0;
};

}  // namespace heddle::policy
