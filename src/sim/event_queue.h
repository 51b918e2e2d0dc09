#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/time.h"

namespace heddle::sim {

/// What is to happen, in order of time; what is due at one instant happens in the order in which it
/// was scheduled. A binary heap: O(log n) a call.
template <class Event>
class EventQueue {
 public:
  struct Entry {
    Instant at{};
    std::uint64_t number = 0;  ///< Of the call that scheduled it.
    Event event{};
  };

  void push(Instant at, Event event) {
    heap_.push_back({.at = at, .number = pushed_++, .event = event});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  /// The next entry, removed. The queue is not empty.
  Entry pop() {
    HEDDLE_CHECK(!heap_.empty());
    std::pop_heap(heap_.begin(), heap_.end(), later);
    const Entry entry = heap_.back();
    heap_.pop_back();
    return entry;
  }

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::size_t size() const { return heap_.size(); }
  /// When the next entry is due. The queue is not empty.
  [[nodiscard]] Instant next() const { return heap_.front().at; }

 private:
  static bool later(const Entry& a, const Entry& b) {
    return a.at != b.at ? a.at > b.at : a.number > b.number;
  }

  std::vector<Entry> heap_{};
  std::uint64_t pushed_ = 0;
};

}  // namespace heddle::sim
