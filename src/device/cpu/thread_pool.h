#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread.h"

#include <sched.h>

namespace heddle::device {

/// A few threads, each pinned to its core, that split loops. The thread that makes the pool is
/// member 0, pinned for the pool's life; it alone calls parallel_for and destroys the pool.
///
/// A loop's pieces are the same in every run; who does which is not: members take the next piece
/// when they are free, so that one whose core is taken by someone else delays a piece and not half
/// of the loop. Members spin briefly between loops and then sleep.
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
  /// a whole number of `grain`s (but for the last), and there are a few per member; `member` in [0,
  /// size) names the thread, for scratch memory. Returns when all have returned. Does not nest.
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
  void take_pieces(int member);
  void serve(int member);

  int size_;
  std::optional<cpu_set_t> affinity_before_{};  ///< Of the thread that is member 0, if pinned.
  std::vector<Thread> threads_{};
  Loop loop_{};
  std::uint32_t pieces_ = 0;  ///< Of the loop.
  // Apart from each other: every member watches the first and writes the others.
  alignas(64) std::atomic<std::uint32_t> round_{0};
  std::atomic<bool> stopping_{false};
  /// Pieces of the loop, and the next of them: one word, so that who comes late, when another loop
  /// has begun, takes a piece of that one or none. `loop_` is that of any piece taken, and stays so
  /// until the piece is done.
  alignas(64) std::atomic<std::uint64_t> pieces_and_next_{0};
  alignas(64) std::atomic<std::uint32_t> done_{0};
};

}  // namespace heddle::device
