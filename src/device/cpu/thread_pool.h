#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/result.h"

#include <sched.h>

namespace heddle::device {

/// A few threads, each pinned to its core, that split loops. The thread that makes the pool is
/// member 0, pinned for the pool's life; it alone calls parallel_for and destroys the pool.
///
/// Work is split by index alone, never by who is free, so a loop's pieces are the same in every
/// run. Members spin briefly between loops and then sleep.
class ThreadPool {  // NOLINT(*-optin.performance.Padding): keeps what threads write apart.
 public:
  /// One member per entry of `cores` (CPU indices); one unpinned member when empty.
  /// kInvalidArgument names a core that this process may not use.
  static Result<std::unique_ptr<ThreadPool>> create(std::span<const int> cores);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int size() const { return size_; }

  /// Calls body(begin, end, member) so that the ranges [begin, end) cover [0, count) once. Each is
  /// a whole number of `grain`s (but for the last), and there is at most one per member; `member`
  /// in [0, size) names the thread, for scratch memory. Returns when all have returned. Does not
  /// nest.
  template <class Body>
  void parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
    run(Loop{.count = count, .grain = grain, .body = &body, .call = &call<Body>});
  }

 private:
  struct Loop {
    std::int64_t count = 0;
    std::int64_t grain = 1;
    const void* body = nullptr;
    void (*call)(const void* body, std::int64_t begin, std::int64_t end, int member) = nullptr;
  };
  template <class Body>
  static void call(const void* body, std::int64_t begin, std::int64_t end, int member) {
    (*static_cast<const Body*>(body))(begin, end, member);
  }

  explicit ThreadPool(int size) : size_(size) {}
  void run(const Loop& loop);
  void run_share(int member) const;
  void serve(int member);

  int size_;
  std::optional<cpu_set_t> affinity_before_{};  ///< Of the thread that is member 0, if pinned.
  std::vector<std::thread> threads_{};
  Loop loop_{};
  // Apart from each other, as every member watches the first and writes the second.
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<int> unfinished_{0};
  std::atomic<bool> stopping_{false};
};

}  // namespace heddle::device
