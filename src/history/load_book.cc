#include "history/load_book.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace heddle::history {
namespace {

/// Spreads every bit (the finisher of SplitMix64).
std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// FNV-1a.
std::uint64_t hash_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  }
  return mixed(hash);
}

std::uint64_t hash_of(std::uint64_t model, const WindowLoad& window) {
  const auto mean = std::bit_cast<std::uint32_t>(static_cast<float>(window.load.mean));
  const auto peak = std::bit_cast<std::uint32_t>(static_cast<float>(window.load.peak));
  return mixed(mixed(model + static_cast<std::uint64_t>(window.window)) +
               (std::uint64_t{mean} << 32U | peak));
}

bool sound(double load) {
  return std::isfinite(load) && load >= 0 && load <= LoadBook::kLoadMost;
}

/// As it comes back from a wire or from policy::LoadHistory, whose numbers are floats.
policy::Load rounded(const policy::Load& load) {
  return {.mean = static_cast<double>(static_cast<float>(load.mean)),
          .peak = static_cast<double>(static_cast<float>(load.peak))};
}

template <class Windows>
auto place_of(Windows& windows, std::int64_t window) {
  return std::ranges::lower_bound(windows, window, {}, &WindowLoad::window);
}

}  // namespace

bool greater(const policy::Load& one, const policy::Load& other) {
  return one.mean > other.mean || (one.mean == other.mean && one.peak > other.peak);
}

void LoadBook::begin(Duration length, std::int64_t keep) {
  HEDDLE_CHECK(length > Duration{});
  if (length != length_) {
    *this = {};
    length_ = length;
  }
  keep_ = std::clamp<std::int64_t>(keep, 1, kWindowsMost);
  forget_oldest();
}

bool LoadBook::put(const std::string& model, std::int64_t window, policy::Load load) {
  const bool possible = !model.empty() && model.size() <= kNameMost && window >= 0 &&
                        window <= kNumberMost && sound(load.mean) && sound(load.peak);
  const bool full = std::ssize(numbers_) >= keep_ && window < numbers_.begin()->first;
  if (!possible || full) {
    return false;
  }
  Model& entry = *find_or_add(model);
  const WindowLoad entered{.window = window, .load = rounded(load)};
  const auto at = place_of(entry.windows, window);
  if (at != entry.windows.end() && at->window == window) {
    if (*at == entered) {
      return false;
    }
    uncount(entry, *at);
    *at = entered;
  } else {
    entry.windows.insert(at, entered);
  }
  count(entry, entered);
  forget_oldest();
  return true;
}

bool LoadBook::merge(const std::string& model, std::int64_t window, policy::Load load) {
  const std::optional<policy::Load> known = at(model, window);
  if (known && !(sound(load.mean) && sound(load.peak) && greater(rounded(load), *known))) {
    return false;
  }
  return put(model, window, load);
}

std::optional<policy::Load> LoadBook::at(const std::string& model, std::int64_t window) const {
  const auto found = models_.find(model);
  if (found == models_.end()) {
    return std::nullopt;
  }
  const auto at = place_of(found->second.windows, window);
  const bool known = at != found->second.windows.end() && at->window == window;
  return known ? std::optional(at->load) : std::nullopt;
}

LoadBook::Model* LoadBook::find_or_add(const std::string& model) {
  const auto found = models_.find(model);
  if (found != models_.end()) {
    return &found->second;
  }
  if (models_.size() >= kModelsMost) {
    forget(std::ranges::min_element(
        models_, {}, [](const auto& entry) { return entry.second.windows.back().window; }));
  }
  Model& added = models_[model];
  added.hash = hash_of(model);
  return &added;
}

void LoadBook::forget_oldest() {
  while (std::ssize(numbers_) > keep_ || size_ > kLoadsMost) {
    const std::int64_t oldest = numbers_.begin()->first;
    for (auto model = models_.begin(); model != models_.end();) {
      std::deque<WindowLoad>& windows = model->second.windows;
      if (windows.front().window == oldest) {
        uncount(model->second, windows.front());
        windows.pop_front();
      }
      model = windows.empty() ? models_.erase(model) : std::next(model);
    }
  }
}

void LoadBook::forget(Models::iterator model) {
  for (const WindowLoad& window : model->second.windows) {
    uncount(model->second, window);
  }
  models_.erase(model);
}

void LoadBook::count(const Model& model, const WindowLoad& window) {
  ++numbers_[window.window];
  ++size_;
  digest_ += hash_of(model.hash, window);
}

void LoadBook::uncount(const Model& model, const WindowLoad& window) {
  const auto number = numbers_.find(window.window);
  if (--number->second == 0) {
    numbers_.erase(number);
  }
  --size_;
  digest_ -= hash_of(model.hash, window);
}

}  // namespace heddle::history
