#include "cluster/expiry.h"

#include <algorithm>

namespace heddle::cluster {

using namespace std::chrono_literals;

namespace {

constexpr Duration kLeastInterval = 10ms;
constexpr Duration kLongestInterval = 2s;
constexpr int kLooksPerLife = 8;

}  // namespace

void Expiry::saw(const std::string& key, Revision revision, Duration life) {
  if (life <= Duration::zero()) {
    records_.erase(key);
    return;
  }
  const auto [at, is_new] = records_.try_emplace(key, Seen{revision, life, time_.sum()});
  if (!is_new && at->second.revision != revision) {
    at->second = {revision, life, time_.sum()};
  }
}

void Expiry::reached(Instant now) {
  time_.look(now, 2 * interval().value_or(kLongestInterval));
}

std::vector<Record> Expiry::take_due() {
  std::vector<Record> due;
  for (auto& [key, seen] : records_) {
    if (time_.sum() - seen.at > seen.life) {
      seen.at = time_.sum();
      due.push_back({.key = key, .revision = seen.revision});
    }
  }
  return due;
}

std::optional<Duration> Expiry::interval() const {
  const auto least =
      std::ranges::min_element(records_, {}, [](const auto& each) { return each.second.life; });
  if (least == records_.end()) {
    return std::nullopt;
  }
  return std::clamp<Duration>(least->second.life / kLooksPerLife, kLeastInterval, kLongestInterval);
}

}  // namespace heddle::cluster
