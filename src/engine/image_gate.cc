#include "engine/image_gate.h"

#include "base/check.h"
#include "ops/wait.h"

namespace heddle::engine {

void ImageGate::advance(std::uint64_t bytes) {
  HEDDLE_CHECK(bytes != ops::kAbandoned);
  // Release: what was written into the image is seen by whoever sees the new mark.
  std::uint64_t now = ready_.load(std::memory_order_relaxed);
  while (now < bytes && !ready_.compare_exchange_weak(
                            now, bytes, std::memory_order_release, std::memory_order_relaxed)) {
  }
  ready_.notify_all();
}

void ImageGate::abandon() {
  ready_.store(ops::kAbandoned, std::memory_order_release);
  ready_.notify_all();
}

}  // namespace heddle::engine
