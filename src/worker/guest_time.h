#pragma once

#include <atomic>
#include <cstdint>

#include "base/time.h"

namespace heddle::worker {

/// How long a device has run attention over guests: by it, its own steps take longer. Any thread.
class GuestTime {
 public:
  void add(Duration time) { ns_.fetch_add(time.count(), std::memory_order_relaxed); }
  [[nodiscard]] Duration total() const { return Duration(ns_.load(std::memory_order_relaxed)); }

 private:
  std::atomic<std::int64_t> ns_{0};
};

}  // namespace heddle::worker
