#include "weave/watch.h"

#include <utility>

namespace heddle::weave {

Watch::~Watch() {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<void> Watch::start() {
  auto thread = Thread::start({.name = "guest-watch"}, [this] { run(); });
  if (!thread) {
    return thread.error();
  }
  thread_ = std::move(*thread);
  return {};
}

void Watch::wake() {
  {
    const std::scoped_lock lock(mutex_);
    busy_ = true;
  }
  changed_.notify_all();
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    if (!busy_) {
      changed_.wait(lock, [this] { return busy_ || over_; });
      continue;
    }
    busy_ = false;  // Whoever wakes it while it looks has it look again.
    lock.unlock();
    const bool more = look_();
    lock.lock();
    if (more) {
      busy_ = true;
      changed_.wait_for(lock, every_, [this] { return over_; });
    }
  }
}

void let_go(device::Flag& flag, std::uint32_t last) {
  std::uint32_t seen = flag.load();
  while (before(seen, last) && !flag.compare_exchange_weak(seen, last + 1)) {
  }
}

}  // namespace heddle::weave
