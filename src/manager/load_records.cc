#include "manager/load_records.h"

#include <chrono>

#include "base/clock.h"

namespace heddle::manager {
namespace {

constexpr std::int64_t kDaysKept = 14;

Duration clock_offset() {
  return Duration(std::chrono::system_clock::now().time_since_epoch()) -
         steady_now().time_since_epoch();
}

}  // namespace

Duration LoadRecords::take_clock_offset() {
  return clock_offset_ = clock_offset();
}

bool LoadRecords::clock_moved() const {
  return std::chrono::abs(clock_offset() - clock_offset_) > window_length_ / 10;
}

void LoadRecords::open(const std::string& directory, Duration window, Duration day) {
  window_length_ = window;
  if (directory.empty()) {
    return;
  }
  kept_ = kDaysKept * (day / window);
  store_ = history::HistoryStore::open(directory, window);
  const Instant today{std::chrono::system_clock::now().time_since_epoch()};
  known_ = store_->read_all(policy::Calendar{.window = window}.window_at(today));
  store_->prune(kept_);
}

std::optional<core::LoadRemembered> LoadRecords::recall(const std::string& name, ModelId model) {
  const auto found = known_.find(name);
  if (found == known_.end()) {
    return std::nullopt;
  }
  core::LoadRemembered remembered{.model = model};
  for (const history::WindowLoad& window : found->second) {
    remembered.windows.emplace_back(window.window, window.load);
  }
  return remembered;
}

void LoadRecords::note(const std::string& model, std::int64_t window, policy::Load load) {
  if (window != window_) {
    save();
    window_ = window;
  }
  noted_.emplace_back(model, load);
  known_[model].push_back({.window = window, .load = load});
}

void LoadRecords::save() {
  if (store_ && !noted_.empty()) {
    store_->record(window_, std::move(noted_));
    store_->prune(kept_);
  }
  noted_.clear();
}

}  // namespace heddle::manager
