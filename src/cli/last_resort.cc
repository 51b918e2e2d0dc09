#include "cli/last_resort.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "base/log.h"
#include "base/units.h"

namespace heddle::cli {

LastResort::~LastResort() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
}

void LastResort::arm(Duration patience) {
  Result<Thread> thread =
      Thread::start({.name = "last resort"}, [this, patience] { wait(patience); });
  if (!thread) {
    log::warning("nothing bounds how long ending takes", {{"why", thread.error().message}});
    return;
  }
  thread_ = std::move(*thread);
}

void LastResort::wait(Duration patience) {
  std::unique_lock lock(mutex_);
  if (changed_.wait_for(lock, patience, [this] { return ended_; })) {
    return;
  }
  // The log may be what hangs.
  std::fprintf(stderr,
               "heddle: did not end within %s, ends at once; what it was at is lost\n",
               format_duration(patience).c_str());
  std::_Exit(EXIT_FAILURE);
}

}  // namespace heddle::cli
