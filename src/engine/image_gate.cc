#include "engine/image_gate.h"

#include <algorithm>

#include "base/check.h"
#include "ops/wait.h"

namespace heddle::engine {

void ImageGate::advance(std::uint64_t bytes) {
  HEDDLE_CHECK(bytes != ops::kAbandoned);
  const std::lock_guard lock(mutex_);
  there_ = std::max(there_, bytes);
  show();
}

void ImageGate::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  show();
}

void ImageGate::pause() {
  const std::lock_guard lock(mutex_);
  paused_ = true;
  show();
}

void ImageGate::resume() {
  const std::lock_guard lock(mutex_);
  paused_ = false;
  show();
}

std::uint64_t ImageGate::there() const {
  const std::lock_guard lock(mutex_);
  return abandoned_ ? 0 : there_;
}

bool ImageGate::abandoned() const {
  const std::lock_guard lock(mutex_);
  return abandoned_;
}

/// Release: what was written into the image is seen by whoever sees the new mark.
void ImageGate::show() {
  ready_.store(abandoned_ || paused_ ? ops::kAbandoned : there_, std::memory_order_release);
  ready_.notify_all();
}

}  // namespace heddle::engine
