#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/serving.h"

namespace heddle::gateway {

/// Which requests of clients have come and wait for their first bytes, for whoever runs something
/// in the background and lets them go first. Loop thread.
class ClientWatch {
 public:
  /// A request that has come; `times` is null once it has ended.
  struct Arrival {
    ModelId model{};
    std::weak_ptr<const core::RequestTimes> times{};
  };

  /// Has `notify` called whenever one comes; null: nobody watches, and none is remembered.
  void watch(std::function<void()> notify) {
    notify_ = std::move(notify);
    arrivals_.clear();
  }
  [[nodiscard]] bool watched() const { return notify_ != nullptr; }

  /// One has come.
  void came(ModelId model, std::weak_ptr<const core::RequestTimes> times) {
    if (notify_) {
      arrivals_.push_back({.model = model, .times = std::move(times)});
      notify_();
    }
  }

  /// Those that wait. What has got something of its answer, or has ended, is forgotten.
  [[nodiscard]] const std::vector<Arrival>& waiting() {
    std::erase_if(arrivals_, [](const Arrival& arrival) {
      const auto times = arrival.times.lock();
      return times == nullptr || times->first_token != Instant{};
    });
    return arrivals_;
  }

 private:
  std::function<void()> notify_{};
  std::vector<Arrival> arrivals_{};
};

}  // namespace heddle::gateway
