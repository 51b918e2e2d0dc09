#include "manager/load_records.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"

namespace heddle::manager {
namespace {

constexpr std::int64_t kDaysKept = 14;

Duration clock_offset() {
  return Duration(std::chrono::system_clock::now().time_since_epoch()) -
         steady_now().time_since_epoch();
}

/// The number of the window under way.
std::int64_t present(Duration window) {
  const Instant now{std::chrono::system_clock::now().time_since_epoch()};
  return policy::Calendar{.window = window}.window_at(now);
}

}  // namespace

Duration LoadRecords::take_clock_offset() {
  return clock_offset_ = clock_offset();
}

bool LoadRecords::clock_moved() const {
  return std::chrono::abs(clock_offset() - clock_offset_) > window_length_ / 10;
}

void LoadRecords::open(const std::string& directory, Duration window, Duration day) {
  const std::int64_t kept = kDaysKept * (day / window);
  if (window == window_length_ && kept == kept_ && directory == directory_) {
    return;
  }
  save();
  store_.reset();
  book_ = {};
  directory_ = directory;
  window_length_ = window;
  kept_ = kept;
  book_.begin(window, kept_);
  if (directory.empty()) {
    return;
  }
  store_ = history::HistoryStore::open(directory, window);
  for (const auto& [model, windows] : store_->read_all(present(window))) {
    for (const history::WindowLoad& each : windows) {
      book_.put(model, each.window, each.load);
    }
  }
  store_->prune(kept_);
}

std::optional<core::LoadRemembered> LoadRecords::recall(const std::string& name,
                                                        ModelId model,
                                                        std::int64_t from,
                                                        std::size_t most) const {
  const auto found = book_.models().find(name);
  if (found == book_.models().end()) {
    return std::nullopt;
  }
  core::LoadRemembered remembered{.model = model};
  const std::int64_t now = present(window_length_);
  const auto& windows = found->second.windows;
  for (auto at = std::ranges::lower_bound(windows, from, {}, &history::WindowLoad::window);
       at != windows.end() && at->window < now && remembered.windows.size() < most;
       ++at) {
    remembered.windows.emplace_back(at->window, at->load);
  }
  return remembered.windows.empty() ? std::nullopt : std::optional(std::move(remembered));
}

void LoadRecords::count_arrival(const std::string& model) {
  if (store_) {
    traffic_now(model).arrived();
  }
}

void LoadRecords::count_end(const std::string& model,
                            std::int64_t prompt_tokens,
                            std::int64_t answer_tokens) {
  if (store_) {
    traffic_now(model).ended(prompt_tokens, answer_tokens);
  }
}

history::Traffic& LoadRecords::traffic_now(const std::string& model) {
  if (const std::int64_t window = present(window_length_); window != traffic_window_) {
    save_traffic();
    traffic_window_ = window;
  }
  return traffic_[model];
}

void LoadRecords::save_traffic() {
  if (store_ && !traffic_.empty()) {
    store_->count(traffic_window_, std::move(traffic_));
  }
  traffic_.clear();
}

void LoadRecords::note(const std::string& model, std::int64_t window, policy::Load load) {
  if (window != window_) {
    save();
    window_ = window;
  }
  noted_.emplace_back(model, load);
  book_.put(model, window, load);
  if (on_noted_) {
    on_noted_(model, {.window = window, .load = load});
  }
}

void LoadRecords::save() {
  save_traffic();
  if (store_ && !noted_.empty()) {
    for (auto& [model, load] : noted_) {
      load = book_.at(model, window_).value_or(load);  // Others may have seen more of it since.
    }
    store_->record(window_, std::move(noted_));
    store_->prune(kept_);
  }
  noted_.clear();
}

Learnt LoadRecords::learn(const history::LoadBook& others) {
  Learnt learnt;
  if (others.length() != window_length_) {
    return learnt;
  }
  history::PastLoads written;
  const std::int64_t now = present(window_length_);
  for (const auto& [name, model] : others.models()) {
    for (const history::WindowLoad& each : model.windows) {
      if (each.window >= now) {
        ++learnt.ahead;
      } else if (book_.merge(name, each.window, each.load)) {
        ++learnt.windows;
        written[name].push_back(each);
      }
    }
  }
  for (const auto& [name, windows] : written) {
    learnt.models.insert(name);
  }
  if (store_ && !written.empty()) {
    store_->enter(std::move(written));  // The next save() prunes.
  }
  return learnt;
}

void LoadRecords::on_noted(
    std::function<void(const std::string& model, const history::WindowLoad&)> heard) {
  on_noted_ = std::move(heard);
}

void LoadRecords::on_recall(std::function<void(const std::set<std::string>& models)> recall) {
  on_recall_ = std::move(recall);
}

void LoadRecords::tell_learnt(const std::set<std::string>& models) const {
  if (on_recall_) {
    on_recall_(models);
  }
}

}  // namespace heddle::manager
