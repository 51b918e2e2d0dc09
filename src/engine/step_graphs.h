#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "device/device.h"

namespace heddle::engine {

/// All that tells one CUDA graph of work from another: addresses, shapes and offsets.
using GraphKey = std::vector<std::uint64_t>;

/// CUDA graphs of steps that come again and again: enqueuing some hundred kernels takes longer than
/// a small model's decode step, replaying them takes one call. Keeps those used last. Used by the
/// one thread that uses the stream.
class StepGraphs {
 public:
  /// Steps remembered, recorded or to be.
  static constexpr std::size_t kMost = 64;

  /// Enqueues what `enqueue` enqueues, equal for equal keys: the first time by calling it, the
  /// second time recording it, then by replaying. Where nothing can be recorded, or not within
  /// set_most(), it is always called, and the first time that recording fails the log says why.
  /// What the stream has not done yet refers to the last CUDA
  /// graph at most.
  void run(device::Stream& stream, GraphKey key, const std::function<void()>& enqueue);

  // The stream has nothing enqueued that refers to a CUDA graph:
  /// From now on CUDA graphs are of at most so many bytes together (device::Graph::bytes); those
  /// used last stay. 0: there are none. Unlimited at first.
  void set_most(std::uint64_t bytes);
  /// Forgets the steps whose keys begin with `first`: their addresses are not good any more.
  void forget(std::uint64_t first);

  [[nodiscard]] std::size_t recorded() const;
  /// Of all CUDA graphs.
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  struct Entry {
    std::unique_ptr<device::Graph> graph{};  ///< Once it was recorded.
    bool refused = false;                    ///< It cannot be.
    std::list<GraphKey>::iterator place{};   ///< In order_.
  };
  using Entries = std::map<GraphKey, Entry>;

  void record(device::Stream& stream, Entry& entry, const std::function<void()>& enqueue);
  Entries::iterator drop(Entries::iterator entry);
  void fit(std::uint64_t most);

  Entries entries_{};
  std::list<GraphKey> order_{};  ///< The one used last in front.
  std::uint64_t most_ = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes_ = 0;
  bool told_ = false;  ///< That a step cannot be recorded.
  /// Dropped since the last run, which the stream may still be at.
  std::vector<std::unique_ptr<device::Graph>> dropped_{};
};

}  // namespace heddle::engine
