#pragma once

#include <atomic>
#include <functional>
#include <span>

#include <boost/asio/thread_pool.hpp>

#include "base/ids.h"
#include "device/cpu/arena.h"

namespace heddle::agent {

/// Gives what backs pages of the arena to the kernel, and takes it again. Loop thread only.
class PageBacking {
 public:
  /// `arena` outlives it.
  explicit PageBacking(device::Arena& arena) : arena_(arena) {}
  /// Waits for what is being restored; what lacks memory is given up.
  ~PageBacking();
  PageBacking(const PageBacking&) = delete;
  PageBacking& operator=(const PageBacking&) = delete;

  /// Nobody touches them until they were restored.
  void release(std::span<const PageId> pages);
  /// Backs them again, however long that takes, and calls `done` in a thread of this object.
  void restore(std::span<const PageId> pages, std::function<void()> done);

 private:
  device::Arena& arena_;
  std::atomic<bool> ending_{false};
  boost::asio::thread_pool thread_{1};
};

}  // namespace heddle::agent
