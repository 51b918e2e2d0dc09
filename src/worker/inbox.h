#pragma once

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace heddle::worker {

/// A queue into one thread from any others. Unbounded: what fills it is bounded at its sources (the
/// manager's queues, the mapper's jobs).
template <class Item>
class Inbox {
 public:
  void push(Item item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
    }
    filled_.notify_one();
  }

  /// Whether one of them is such.
  template <class Is>
  [[nodiscard]] bool has(Is is) {
    const std::lock_guard lock(mutex_);
    return std::any_of(items_.begin(), items_.end(), is);
  }

  /// All there is, in order; perhaps nothing.
  [[nodiscard]] std::vector<Item> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

  /// All there is, after waiting for the first.
  [[nodiscard]] std::vector<Item> wait() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [this] { return !items_.empty(); });
    return std::exchange(items_, {});
  }

 private:
  std::mutex mutex_{};
  std::condition_variable filled_{};
  std::vector<Item> items_{};
};

}  // namespace heddle::worker
