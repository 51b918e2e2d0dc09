#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace heddle::engine {

/// How much of a model's image is in place, told by whoever fills it and awaited by the stream that
/// runs it (ops::wait). All members: any thread.
class ImageGate {
 public:
  /// The first `bytes` are in place. Smaller than before, or after abandon(): ignored.
  void advance(std::uint64_t bytes);
  /// Nothing more will come; who waits gives up. For good.
  void abandon();
  /// Who waits gives up, and so does who comes to wait, until resume(). For something that cannot
  /// wait as long.
  void pause();
  /// Nobody waits now.
  void resume();
  [[nodiscard]] const std::atomic<std::uint64_t>& watermark() const { return ready_; }
  /// What is in place; 0 after abandon().
  [[nodiscard]] std::uint64_t there() const;
  [[nodiscard]] bool abandoned() const;

 private:
  void show();

  mutable std::mutex mutex_{};
  std::uint64_t there_ = 0;  // Guarded, as the next two.
  bool abandoned_ = false;
  bool paused_ = false;
  std::atomic<std::uint64_t> ready_{0};  ///< What waits may go by.
};

}  // namespace heddle::engine
