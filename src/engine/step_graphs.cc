#include "engine/step_graphs.h"

#include <algorithm>
#include <utility>

namespace heddle::engine {

void StepGraphs::run(device::Stream& stream, GraphKey key, const std::function<void()>& enqueue) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() == kMost) {
      entries_.erase(order_.back());
      order_.pop_back();
    }
    order_.push_front(key);
    entries_.emplace(std::move(key), Entry{.place = order_.begin()});
    enqueue();
    return;
  }
  Entry& entry = found->second;
  order_.splice(order_.begin(), order_, entry.place);
  if (entry.graph == nullptr && !entry.refused) {
    if (stream.begin_capture()) {
      enqueue();
      if (auto graph = stream.end_capture()) {
        entry.graph = std::move(*graph);
      }
    }
    entry.refused = entry.graph == nullptr;
  }
  if (entry.refused) {
    enqueue();
  } else {
    stream.replay(*entry.graph);
  }
}

void StepGraphs::clear() {
  entries_.clear();
  order_.clear();
}

std::size_t StepGraphs::recorded() const {
  return static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
        return entry.second.graph != nullptr;
      }));
}

}  // namespace heddle::engine
