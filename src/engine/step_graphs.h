#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "device/device.h"

namespace heddle::engine {

/// All that tells one recording of work from another: addresses, shapes and offsets.
using GraphKey = std::vector<std::uint64_t>;

/// Recordings of steps that come again and again: enqueuing some hundred kernels takes longer than
/// a small model's decode step, replaying them takes one call. Keeps those used last. Used by the
/// one thread that uses the stream.
class StepGraphs {
 public:
  /// Recordings kept; a few MiB of the device's memory each.
  static constexpr std::size_t kMost = 64;

  /// Enqueues what `enqueue` enqueues, equal for equal keys: the first time by calling it, the
  /// second time recording it, then by replaying. Where nothing can be recorded it is always
  /// called. What the stream has not done yet refers to the last recording at most.
  void run(device::Stream& stream, GraphKey key, const std::function<void()>& enqueue);
  /// Forgets all recordings, whose addresses are not good any more. The stream has nothing enqueued
  /// that refers to one.
  void clear();

  [[nodiscard]] std::size_t recorded() const;

 private:
  struct Entry {
    std::unique_ptr<device::Graph> graph{};  ///< Once it was recorded.
    bool refused = false;                    ///< It cannot be.
    std::list<GraphKey>::iterator place{};   ///< In order_.
  };

  std::map<GraphKey, Entry> entries_{};
  std::list<GraphKey> order_{};  ///< The one used last in front.
};

}  // namespace heddle::engine
