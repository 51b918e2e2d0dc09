#pragma once

#include <atomic>
#include <cstdint>

namespace heddle::engine {

/// How much of a model's image is in place, told by whoever fills it and awaited by the stream that
/// runs it (ops::wait). All members: any thread.
class ImageGate {
 public:
  /// The first `bytes` are in place. Smaller than before, or after abandon(): ignored.
  void advance(std::uint64_t bytes);
  /// Nothing more will come; who waits gives up. For good.
  void abandon();
  [[nodiscard]] const std::atomic<std::uint64_t>& watermark() const { return ready_; }

 private:
  std::atomic<std::uint64_t> ready_{0};
};

}  // namespace heddle::engine
