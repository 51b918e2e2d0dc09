#include "policy/load_history.h"

#include <algorithm>

#include "base/check.h"

namespace heddle::policy {

std::int64_t Calendar::window_at(Instant at) const {
  const std::int64_t time = (at.time_since_epoch() + offset).count();
  const std::int64_t length = window.count();
  return time >= 0 ? time / length : -1 - (-1 - time) / length;
}

Instant Calendar::start_of(std::int64_t index) const {
  return Instant(window * index - offset);
}

LoadHistory::LoadHistory(std::int64_t windows_per_day, std::int64_t days)
    : windows_per_day_(windows_per_day),
      days_(days),
      ring_(static_cast<std::size_t>(windows_per_day * (days + 1))) {
  HEDDLE_CHECK(windows_per_day > 0 && days > 0);
}

LoadHistory::Cell& LoadHistory::cell(std::int64_t window) {
  return ring_[static_cast<std::size_t>(window % capacity())];
}

const LoadHistory::Cell& LoadHistory::cell(std::int64_t window) const {
  return ring_[static_cast<std::size_t>(window % capacity())];
}

void LoadHistory::record(std::int64_t window, Load load) {
  HEDDLE_CHECK(window >= 0);
  HEDDLE_CHECK(load.mean >= 0 && load.peak >= 0);
  // Forward: the cells of skipped windows still hold a round ago. Backward: cells ahead of now.
  const std::int64_t from = std::min(newest_ + 1, window);
  const std::int64_t to = std::max(newest_, window);
  if (to - from >= capacity()) {
    std::fill(ring_.begin(), ring_.end(), Cell{});
  } else {
    for (std::int64_t w = from; w <= to; ++w) {
      cell(w) = {};
    }
  }
  newest_ = window;
  cell(window) = {static_cast<float>(load.mean), static_cast<float>(load.peak)};
}

std::optional<Load> LoadHistory::at(std::int64_t window) const {
  if (window < 0 || window > newest_ || window <= newest_ - capacity()) {
    return std::nullopt;
  }
  const Cell& found = cell(window);
  if (found.mean < 0) {
    return std::nullopt;
  }
  return Load{.mean = found.mean, .peak = found.peak};
}

void LoadMeter::change(Instant at,
                       std::int64_t delta,
                       const Calendar& calendar,
                       LoadHistory& history) {
  advance(at, calendar, history);
  in_system_ += delta;
  HEDDLE_CHECK(in_system_ >= 0);
  peak_ = std::max(peak_, in_system_);
}

void LoadMeter::advance(Instant now, const Calendar& calendar, LoadHistory& history) {
  HEDDLE_CHECK(now >= counted_to_);
  const std::int64_t current = calendar.window_at(now);
  if (window_ < 0) {
    window_ = calendar.window_at(counted_to_);
  }
  // Windows so long ago that the history would forget them at once are not worth the walk.
  const std::int64_t remembered = history.windows_per_day() * (history.days() + 1);
  if (current - window_ > remembered) {
    close(calendar, history);
    window_ = current - remembered;
    counted_to_ = std::max(counted_to_, calendar.start_of(window_));
  }
  while (window_ < current) {
    const Instant end = std::clamp(calendar.start_of(window_ + 1), counted_to_, now);
    measured_ += end - counted_to_;
    request_seconds_ += static_cast<double>(in_system_) * to_seconds(end - counted_to_);
    counted_to_ = end;
    close(calendar, history);
    ++window_;
  }
  if (window_ > current) {  // The wall clock went back: what was measured belongs to no window.
    measured_ = {};
    request_seconds_ = 0;
    peak_ = in_system_;
    counted_to_ = std::max(counted_to_, std::min(now, calendar.start_of(current)));
    window_ = current;
  }
  measured_ += now - counted_to_;
  request_seconds_ += static_cast<double>(in_system_) * to_seconds(now - counted_to_);
  counted_to_ = now;
}

void LoadMeter::close(const Calendar& calendar, LoadHistory& history) {
  if (window_ >= 0 && measured_ * 2 >= calendar.window && measured_ <= calendar.window) {
    history.record(
        window_,
        {.mean = request_seconds_ / to_seconds(measured_), .peak = static_cast<double>(peak_)});
  }
  measured_ = {};
  request_seconds_ = 0;
  peak_ = in_system_;
}

}  // namespace heddle::policy
