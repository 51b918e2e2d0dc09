#include "engine/step_graphs.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace heddle::engine {

void StepGraphs::run(device::Stream& stream, GraphKey key, const std::function<void()>& enqueue) {
  dropped_.clear();  // What the stream is at is the last run's at most, which came after these.
  if (most_ == 0) {
    enqueue();
    return;
  }
  const auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() == kMost) {
      drop(entries_.find(order_.back()));
    }
    order_.push_front(key);
    entries_.emplace(std::move(key), Entry{.place = order_.begin()});
    enqueue();
    return;
  }
  Entry& entry = found->second;
  order_.splice(order_.begin(), order_, entry.place);
  if (entry.graph == nullptr && !entry.refused) {
    record(stream, entry, enqueue);
  }
  if (entry.refused) {
    enqueue();
  } else {
    stream.replay(*entry.graph);
  }
}

/// Others make room for it.
void StepGraphs::record(device::Stream& stream,
                        Entry& entry,
                        const std::function<void()>& enqueue) {
  if (stream.begin_capture()) {
    enqueue();
    auto graph = stream.end_capture();
    if (!graph && !std::exchange(told_, true)) {
      log::warning("a step cannot be recorded as a CUDA graph, and maybe others: they run without",
                   {{"why", graph.error().message}});
    }
    if (graph && (*graph)->bytes() <= most_) {
      fit(most_ - (*graph)->bytes());
      bytes_ += (*graph)->bytes();
      entry.graph = std::move(*graph);
    }
  }
  entry.refused = entry.graph == nullptr;
}

StepGraphs::Entries::iterator StepGraphs::drop(Entries::iterator entry) {
  if (entry->second.graph != nullptr) {
    bytes_ -= entry->second.graph->bytes();
    dropped_.push_back(std::move(entry->second.graph));
  }
  order_.erase(entry->second.place);
  return entries_.erase(entry);
}

/// Drops CUDA graphs until they are of at most so many bytes.
void StepGraphs::fit(std::uint64_t most) {
  for (auto key = order_.end(); bytes_ > most && key != order_.begin();) {
    --key;
    const auto entry = entries_.find(*key);
    if (entry->second.graph != nullptr) {
      const auto after = std::next(key);
      drop(entry);
      key = after;
    }
  }
}

void StepGraphs::set_most(std::uint64_t bytes) {
  most_ = bytes;
  fit(bytes);
  dropped_.clear();
  for (auto& [key, entry] : entries_) {
    entry.refused = false;  // It may fit now.
  }
}

void StepGraphs::forget(std::uint64_t first) {
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->first.front() == first ? drop(entry) : std::next(entry);
  }
  dropped_.clear();
}

std::size_t StepGraphs::recorded() const {
  return static_cast<std::size_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
        return entry.second.graph != nullptr;
      }));
}

}  // namespace heddle::engine
