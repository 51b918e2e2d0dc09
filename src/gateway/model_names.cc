#include "gateway/model_names.h"

#include <algorithm>
#include <utility>

namespace heddle::gateway {

namespace {

constexpr std::string_view kLatest = ":latest";

std::string_view without_latest(std::string_view name) {
  return name.ends_with(kLatest) ? name.substr(0, name.size() - kLatest.size()) : name;
}

template <class Entry>
const Entry* with_id(const std::vector<Entry>& entries, std::string_view id) {
  const auto found = std::ranges::find(entries, id, &Entry::id);
  return found == entries.end() ? nullptr : &*found;
}

}  // namespace

void ModelNames::assign(const config::Config& config) {
  selectors_ = config.selectors;
  profiles_ = config.profiles;
  active_.clear();
  std::erase_if(sent_, [this](const auto& entry) { return selector(entry.first) == nullptr; });
}

const config::ProfileConfig* ModelNames::pins() const {
  return active_.empty() ? nullptr : with_id(profiles_, active_);
}

const config::SelectorConfig* ModelNames::selector(std::string_view name) const {
  const config::SelectorConfig* const found = with_id(selectors_, name);
  return found != nullptr ? found : with_id(selectors_, without_latest(name));
}

bool ModelNames::activate(const std::string& id) {
  if (!id.empty() && with_id(profiles_, id) == nullptr) {
    return false;
  }
  active_ = id;
  return true;
}

std::optional<std::string> ModelNames::pinned(std::string_view name) const {
  const config::ProfileConfig* const profile = pins();
  if (profile == nullptr) {
    return std::nullopt;
  }
  for (const std::string_view spelled : {name, without_latest(name)}) {
    for (const auto& [pin, target] : profile->pins) {
      if (pin == spelled) {
        return target;
      }
    }
  }
  return std::nullopt;
}

std::optional<ModelNames::Meant> ModelNames::resolve(std::string_view name, const Look& look) {
  const std::optional<std::string> pin = pinned(name);
  const std::string_view wanted = pin ? std::string_view(*pin) : name;
  if (const config::SelectorConfig* const found = selector(wanted)) {
    return choose(*found, look);
  }
  return pin ? std::optional(Meant{.model = *pin}) : std::nullopt;
}

ModelNames::Meant ModelNames::choose(const config::SelectorConfig& selector, const Look& look) {
  const std::vector<std::string>& targets = selector.targets;
  Meant meant{.model = targets.front()};
  if (selector.strategy == config::SelectorStrategy::kWarm) {
    for (const Standing wanted : {Standing::kReady, Standing::kComing}) {
      const auto found = std::ranges::find_if(
          targets, [&](const std::string& target) { return look(target) == wanted; });
      if (found != targets.end()) {
        meant.model = *found;
        break;
      }
    }
  }
  if (selector.strategy == config::SelectorStrategy::kSpillover) {
    meant.model = spill(selector, look);
    meant.place = sent_[selector.id][meant.model].take("", 1);
  }
  return meant;
}

/// The least busy target that is there, unless it has its share of requests and another one, which
/// is not there, has none. One that is leaving is the last resort.
std::string ModelNames::spill(const config::SelectorConfig& selector, const Look& look) {
  const std::string* least = nullptr;
  const std::string* next = nullptr;
  std::int64_t fewest = 0;
  for (const std::string& target : selector.targets) {
    const Standing standing = look(target);
    const std::int64_t sent = sent_[selector.id][target].size();
    if (standing == Standing::kLeaving) {
      continue;
    }
    if (standing == Standing::kAway && sent == 0) {
      next = next == nullptr ? &target : next;
    } else if (least == nullptr || sent < fewest) {
      least = &target;
      fewest = sent;
    }
  }
  if (least == nullptr || (fewest >= selector.spillover && next != nullptr)) {
    least = next;
  }
  return least == nullptr ? selector.targets.front() : *least;
}

}  // namespace heddle::gateway
